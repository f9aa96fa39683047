/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Flows, in the shape of both families and in IPv4's.
 */
#ifndef IMBANG_FLOW_H
#define IMBANG_FLOW_H

#include "address.h"
#include "maps.h"

static __always_inline void flow_to4(const struct flow *flow, struct flow4 *four)
{
	four->src = address_to4(&flow->src);
	four->dst = address_to4(&flow->dst);
	__builtin_memcpy(&four->sport, &flow->sport, 2 * sizeof(four->sport));
	*(__u32 *)&four->protocol =
		flow->protocol | (__u32)flow->template << 8 | (__u32)flow->pad << 16;
}

static __always_inline void flow_from4(const struct flow4 *four, struct flow *flow)
{
	address_from4(&flow->src, four->src);
	address_from4(&flow->dst, four->dst);
	flow->sport = four->sport;
	flow->dport = four->dport;
	flow->protocol = four->protocol;
	flow->template = four->template;
	flow->family = AF_INET;
	flow->pad = four->pad[0];
}

static __always_inline int flow_equal(const struct flow *a, const struct flow *b)
{
	return address_equal(&a->src, &b->src) && address_equal(&a->dst, &b->dst) &&
	       a->sport == b->sport && a->dport == b->dport && a->protocol == b->protocol &&
	       a->template == b->template && a->family == b->family;
}

/* The flow of the replies to a packet. */
static __always_inline void flow_turn(const struct flow *flow, struct flow *back)
{
	back->src = flow->dst;
	back->dst = flow->src;
	back->sport = flow->dport;
	back->dport = flow->sport;
	back->protocol = flow->protocol;
	back->template = 0;
	back->family = flow->family;
	back->pad = 0;
}

/* As much of it as IPv4 needs, where the stack has no room for all. */
union conn_key4 {
	struct flow4 four;
	__u64 word[2];
};

#endif
