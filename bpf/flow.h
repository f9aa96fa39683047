/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Flows, and the tables that have them as key: a map for each family, behind
 * functions that serve both. A key is copied to the stack first, since it may
 * be a function's argument, which kernels before 6.2 take for no key.
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

/* The connection of a flow of a family that is known when this is compiled. */
static __always_inline struct conn *conn_find_in(const struct flow *flow, __u8 family)
{
	struct flow4 four;
	struct flow six;

	if (family == AF_INET6) {
		six = *flow;
		return bpf_map_lookup_elem(&conns6, &six);
	}
	flow_to4(flow, &four);
	return bpf_map_lookup_elem(&conns4, &four);
}

static __noinline struct conn *conn_find(const struct flow *flow)
{
	return flow->family == AF_INET6 ? conn_find_in(flow, AF_INET6)
					: conn_find_in(flow, AF_INET);
}

/* 0, or an error if the flow has a connection or there is no room. */
static __noinline long conn_put(const struct flow *flow, const struct conn *c)
{
	struct flow4 four;
	struct flow six;

	if (flow->family == AF_INET6) {
		six = *flow;
		return bpf_map_update_elem(&conns6, &six, c, BPF_NOEXIST);
	}
	flow_to4(flow, &four);
	return bpf_map_update_elem(&conns4, &four, c, BPF_NOEXIST);
}

static __noinline void conn_forget(const struct flow *flow)
{
	struct flow4 four;
	struct flow six;

	if (flow->family == AF_INET6) {
		six = *flow;
		bpf_map_delete_elem(&conns6, &six);
		return;
	}
	flow_to4(flow, &four);
	bpf_map_delete_elem(&conns4, &four);
}

/* The client's flow of a server's, likewise; 1 if there is one. */
static __always_inline int reverse_find_in(const struct flow *flow, struct flow *client,
					   __u8 family)
{
	struct flow4 four, *found4;
	struct flow six, *found;

	if (family == AF_INET6) {
		six = *flow;
		found = bpf_map_lookup_elem(&reverse6, &six);
		if (found)
			*client = *found;
		return !!found;
	}
	flow_to4(flow, &four);
	found4 = bpf_map_lookup_elem(&reverse4, &four);
	if (found4)
		flow_from4(found4, client);
	return !!found4;
}

static __noinline int reverse_find(const struct flow *flow, struct flow *client)
{
	return flow->family == AF_INET6 ? reverse_find_in(flow, client, AF_INET6)
					: reverse_find_in(flow, client, AF_INET);
}

static __noinline long reverse_put(const struct flow *flow, const struct flow *client, __u64 flags)
{
	struct flow4 four, client4;
	struct flow six, client6;

	if (flow->family == AF_INET6) {
		six = *flow;
		client6 = *client;
		return bpf_map_update_elem(&reverse6, &six, &client6, flags);
	}
	flow_to4(flow, &four);
	flow_to4(client, &client4);
	return bpf_map_update_elem(&reverse4, &four, &client4, flags);
}

static __noinline void reverse_forget(const struct flow *flow)
{
	struct flow4 four;
	struct flow six;

	if (flow->family == AF_INET6) {
		six = *flow;
		bpf_map_delete_elem(&reverse6, &six);
		return;
	}
	flow_to4(flow, &four);
	bpf_map_delete_elem(&reverse4, &four);
}

#endif
