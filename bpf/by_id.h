/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Look-ups in tables that are in pages (maps.h): by the id of a server or of a service, and by
 * the slot of a list. What has no page is not there: no process has added it.
 */
#ifndef IMBANG_BY_ID_H
#define IMBANG_BY_ID_H

#include "kernel.h"
#include "maps.h"

static __always_inline void *paged(void *pages, __u32 number, __u32 size)
{
	__u32 page = number / size, at = number % size;
	void *map = bpf_map_lookup_elem(pages, &page);

	return map ? bpf_map_lookup_elem(map, &at) : 0;
}

/* Likewise, of a CPU. */
static __always_inline void *paged_cpu(void *pages, __u32 number, __u32 size, __u32 cpu)
{
	__u32 page = number / size, at = number % size;
	void *map = bpf_map_lookup_elem(pages, &page);

	return map ? bpf_map_lookup_percpu_elem(map, &at, cpu) : 0;
}

#define BY_ID(table, name, value)                    \
	static __always_inline value *name(__u32 id) \
	{                                            \
		return paged(&table, id, PAGE_IDS);  \
	}

BY_ID(servers, server_of, struct server)
BY_ID(loads, load_of, struct load)
BY_ID(server_counters, server_counters_of, struct counters)
BY_ID(server_rates, server_rates_of, struct rates)
BY_ID(ramp_turns, ramp_turn_of, struct ramp_turn)
BY_ID(maglev_turns, maglev_turn_of, struct maglev_turn)
BY_ID(service_states, service_state_of, struct service_state)
BY_ID(service_counters, service_counters_of, struct counters)
BY_ID(service_rates, service_rates_of, struct rates)
BY_ID(fair_sums, fair_sum_of, struct fair_sum)
BY_ID(crowds, crowd_of, struct crowd)

/* Where it is not often: a call, which leaves the caller's stack alone. */
static __noinline struct server *server_far(__u32 id)
{
	return server_of(id);
}

static __noinline struct load *load_far(__u32 id)
{
	return load_of(id);
}

/* The id in a slot. */
static __always_inline __u32 *order_at(__u32 slot)
{
	return paged(&order, slot, PAGE_SLOTS);
}

/* The nodes of two slots. */
static __always_inline struct tree_pair *tree_pair_at(__u32 pair)
{
	return paged(&trees, pair, PAGE_SLOTS / 2);
}

#endif
