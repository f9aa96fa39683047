/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Flows, and the tables that have them as key: a map for each family, behind
 * functions that serve both. A key is copied to the stack first, since it may
 * be a function's argument, which kernels before 6.2 take for no key.
 */
#ifndef IMBANG_FLOW_H
#define IMBANG_FLOW_H

#include "address.h"
#include "element.h"
#include "hook.h"
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

/* The client's flow of a server's; 1 if there is one. `stop`: tests may stop here. */
static __always_inline int reverse_find_in(const struct flow *flow, union conn_key *key,
					   struct flow *client, __u8 family, int stop)
{
	struct flow4 *found4;
	struct flow *found;

	if (family == AF_INET6) {
		key->six = *flow;
		found = bpf_map_lookup_elem(&reverse6, &key->six);
		if (found)
			*client = *found;
		return !!found;
	}
	flow_to4(flow, &key->four);
	found4 = bpf_map_lookup_elem(&reverse4, &key->four);
	if (found4) {
		if (stop)
			HOOK(REVERSE_FOUND);
		flow_from4(found4, client);
	}
	return !!found4;
}

static __noinline int reverse_find(const struct flow *flow, struct flow *client)
{
	union conn_key key;

	return flow->family == AF_INET6 ? reverse_find_in(flow, &key, client, AF_INET6, 0)
					: reverse_find_in(flow, &key, client, AF_INET, 0);
}

static __always_inline long reverse_put(const struct flow *flow, const struct flow *client,
					__u64 flags)
{
	struct flow4 four, client4;
	struct flow six, client6;

	if (flow->family == AF_INET6) {
		six = *flow;
		client6 = *client;
		return map_update(reverse6, &six, &client6, flags);
	}
	flow_to4(flow, &four);
	flow_to4(client, &client4);
	return map_update(reverse4, &four, &client4, flags);
}

static __noinline long reverse_forget(const struct flow *flow)
{
	struct flow4 four;
	struct flow six;

	if (flow->family == AF_INET6) {
		six = *flow;
		return map_delete(reverse6, &six);
	}
	flow_to4(flow, &four);
	return map_delete(reverse4, &four);
}

/* Whether the entry of a server's flow leads to this client. */
static __noinline int reverse_leads(const struct flow *flow, const struct flow *client)
{
	struct flow4 four, *found4;
	struct flow six, *found;

	if (flow->family == AF_INET6) {
		six = *flow;
		found = bpf_map_lookup_elem(&reverse6, &six);
		return found && flow_equal(found, client);
	}
	flow_to4(flow, &four);
	found4 = bpf_map_lookup_elem(&reverse4, &four);
	if (!found4)
		return 0;
	flow_from4(found4, &six);
	return flow_equal(&six, client);
}

/* Deletes the entry of a server's flow, unless it is another client's by now: 0, or an
 * error. */
static __always_inline long reverse_release(const struct flow *flow, const struct flow *client)
{
	return reverse_leads(flow, client) ? reverse_forget(flow) : 0;
}

#endif
