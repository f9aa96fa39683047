// SPDX-License-Identifier: GPL-2.0-only
/*
 * One hash of the kernel, without a wheel. The driver loads it in three ways: elements allocated
 * one by one (the design), elements made with the map (the bound of what the kernel's hash can
 * do), and as an LRU hash.
 *
 * Invariants:
 * 1. `expires` decides whether an entry lives: 0 is dead, and only compare-and-swap changes it,
 *    so exactly one CPU ends an entry.
 * 2. The CPU that has ended an entry deletes it. Until then its flow cannot be opened.
 * 3. An element begins with its flow, which a reader compares last (conn_entry.h, rule 4).
 */
#include "flows.h"

#define LIFE_DEAD 0

struct life {
	struct flow4 flow;
	__u64 expires; /* [ns]; LIFE_DEAD */
	__u64 word;    /* incarnation, state, flags, port */
	__u32 server;
	__u32 fwmark;
	__u32 netmask;
	__u32 told;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, struct flow4);
	__type(value, struct life);
} table SEC(".maps");

static __always_inline int table_find(const struct flow4 *f, __u64 now)
{
	struct life *e = bpf_map_lookup_elem(&table, f);

	if (!e || *(volatile __u64 *)&e->expires <= now || !flow_is(&e->flow, f))
		return 0;
	return truth(e->expires);
}

static __noinline int table_open(const struct flow4 *f, __u64 now, __u64 timeout)
{
	struct flow4 key = *f;
	struct life fresh = { .flow = *f, .expires = now + timeout, .word = 1 };

	return bpf_map_update_elem(&table, &key, &fresh, BPF_NOEXIST);
}

static __noinline int table_end(const struct flow4 *f)
{
	struct flow4 key = *f;
	struct life *e = bpf_map_lookup_elem(&table, &key);
	__u64 expires = e ? *(volatile __u64 *)&e->expires : LIFE_DEAD;

	if (!e || expires == LIFE_DEAD || !flow_is(&e->flow, &key))
		return 0;
	if (__sync_val_compare_and_swap(&e->expires, expires, LIFE_DEAD) != expires)
		return 0;
	return !bpf_map_delete_elem(&table, &key);
}

struct walk {
	__u64 now;
	__u64 seen;
};

static long sweep_one(void *map, const struct flow4 *key, struct life *e, struct walk *w)
{
	__u64 expires = *(volatile __u64 *)&e->expires;

	w->seen++;
	if (expires != LIFE_DEAD && expires <= w->now)
		table_end(key);
	return 0;
}

/* The kernel's walk has no cursor: the budget cannot be kept. */
static __always_inline __u64 table_sweep(__u32 budget, __u64 now, __u64 *more)
{
	struct walk w = { .now = now };

	bpf_for_each_map_elem(&table, sweep_one, &w, 0);
	return w.seen;
}

#include "bench.h"
