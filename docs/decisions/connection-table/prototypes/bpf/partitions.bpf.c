// SPDX-License-Identifier: GPL-2.0-only
/*
 * Partitions by bits of a keyed hash. Each is a hash of the kernel, which a process replaces by
 * a bigger one: it makes the map, has both searched, moves the entries (program `move`), and
 * drops the former map.
 *
 * Maps of a partition: `current`, in which entries are opened; while it grows also `former` and
 * `next`, of which one is the same map. The process changes one of them at a time and waits for a
 * grace period after each change, so that CPUs differ by at most one change:
 *   next = new; former = old; growing = 1; current = new; (move); growing = 0; former = new.
 *
 * Invariants:
 * 1. `expires` decides whether an entry lives (0: dead) and changes by compare-and-swap alone.
 * 2. While a partition grows, an entry is reserved first (LIFE_RESERVED), then the partition's
 *    other maps are searched, then it is confirmed by a compare-and-swap of `word`. Two CPUs that
 *    open one flow in two maps both insert before they search, so at least one finds the other's.
 *    The CPU that has reserved in the new map kills a reservation in the old one; the one that has
 *    reserved in the old map gives way. So exactly one is confirmed.
 * 3. A moved copy is reserved until the original is dead, so no flow has two entries that live.
 *    If the original has changed since it was copied, the copy is withdrawn and made again.
 * 4. An entry that finds a reservation of its flow is not opened: the packet is dropped.
 */
#include "flows.h"

#define MAX_PARTS 4096
#define LIFE_RESERVED 1ULL
#define LIFE_TICKET_SHIFT 8

struct life {
	struct flow4 flow;
	__u64 expires; /* [ns]; 0: dead */
	__u64 word;    /* a ticket, which no other opening has; LIFE_RESERVED */
	__u32 server;
	__u32 fwmark;
	__u32 netmask;
	__u32 told;
};

/* Without a name, and with sizes: clang does not describe what is only pointed to. */
#define PART                                             \
	struct {                                         \
		__uint(type, BPF_MAP_TYPE_HASH);         \
		__uint(max_entries, 64);                 \
		__uint(key_size, sizeof(struct flow4));  \
		__uint(value_size, sizeof(struct life)); \
	}

enum part_map { PART_CURRENT, PART_FORMER, PART_NEXT, PART_MAPS };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, PART_MAPS *MAX_PARTS);
	__type(key, __u32);
	__array(values, PART);
} parts SEC(".maps");

/* For entries while a process that could make bigger maps is dead. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, struct flow4);
	__type(value, struct life);
} overflow SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} tickets SEC(".maps");

const volatile __u32 part_mask = 63;

__u32 part_growing[MAX_PARTS]; /* the process */
__u32 part_used[MAX_PARTS];    /* entries, about */
__u32 overflow_used;
__u32 part_cursor;

static __always_inline __u32 part_of(const struct flow4 *f)
{
	return flow_hash(f) & part_mask & (MAX_PARTS - 1);
}

static __always_inline void *part_map(__u32 part, enum part_map which)
{
	__u32 at = which * MAX_PARTS + part;

	return bpf_map_lookup_elem(&parts, &at);
}

/* The living entry of a flow in one map. */
static __always_inline struct life *life_in(void *map, const struct flow4 *f, __u64 now)
{
	struct life *e = map ? bpf_map_lookup_elem(map, f) : 0;

	return e && *(volatile __u64 *)&e->expires > now && flow_is(&e->flow, f) ? e : 0;
}

static __noinline int find_elsewhere(const struct flow4 *f, __u64 now, __u32 part)
{
	struct flow4 key = *f;
	struct life *e;

	part &= MAX_PARTS - 1;
	if (part_growing[part]) {
		e = life_in(part_map(part, PART_FORMER), &key, now);
		if (!e)
			e = life_in(part_map(part, PART_NEXT), &key, now);
		if (e)
			return 1;
	}
	return overflow_used && life_in(&overflow, &key, now);
}

static __always_inline int table_find(const struct flow4 *f, __u64 now)
{
	__u32 part = part_of(f);
	struct life *e = life_in(part_map(part, PART_CURRENT), f, now);

	if (e && !(e->word & LIFE_RESERVED))
		return truth(e->expires);
	if (!part_growing[part] && !overflow_used)
		return 0;
	return find_elsewhere(f, now, part);
}

/* Ends the living entry with this ticket in one map, and deletes it. */
static __always_inline int life_end(void *map, const struct flow4 *f, struct life *e)
{
	__u64 expires = *(volatile __u64 *)&e->expires;

	if (!map || !expires || __sync_val_compare_and_swap(&e->expires, expires, 0) != expires)
		return 0;
	return !bpf_map_delete_elem(map, f);
}

/* After the reservation with this ticket: whether another entry of the flow in this map
 * stands against it. */
static __always_inline int life_rivals(void *map, const struct flow4 *f, __u64 word, int strong)
{
	struct life *e = life_in(map, f, 0);
	__u64 theirs;

	if (!map || !e)
		return 0;
	theirs = *(volatile __u64 *)&e->word;
	if (theirs == word)
		return 0; /* the same map */
	if (strong && theirs & LIFE_RESERVED &&
	    __sync_val_compare_and_swap(&e->word, theirs, LIFE_RESERVED) == theirs) {
		life_end(map, f, e);
		return 0;
	}
	return 1;
}

static __noinline int open_growing(const struct flow4 *f, __u32 part, __u64 word)
{
	struct flow4 key = *f;
	void *map;
	struct life *e;
	int rivals;

	part &= MAX_PARTS - 1;
	/* A reservation in the new map, for this CPU still `next`, is the stronger one. */
	rivals = life_rivals(part_map(part, PART_NEXT), &key, word, 0) ||
		 life_rivals(part_map(part, PART_FORMER), &key, word, 1);
	map = part_map(part, PART_CURRENT);
	e = life_in(map, &key, 0);
	if (!e)
		return -EEXIST; /* killed */
	if (!rivals && __sync_val_compare_and_swap(&e->word, word, word & ~LIFE_RESERVED) == word)
		return 0;
	if (*(volatile __u64 *)&e->word == word)
		life_end(map, &key, e);
	return -EEXIST;
}

static __noinline int table_open(const struct flow4 *f, __u64 now, __u64 timeout)
{
	struct flow4 key = *f;
	struct life fresh = { .flow = *f, .expires = now + timeout };
	__u32 part = part_of(f), zero = 0;
	__u64 *ticket = bpf_map_lookup_elem(&tickets, &zero);
	void *map = part_map(part, PART_CURRENT);
	int growing = part_growing[part];
	long rc;

	if (!ticket || !map)
		return -ENOMEM;
	fresh.word = (++*ticket << 8 | (bpf_get_smp_processor_id() & 0xff)) << LIFE_TICKET_SHIFT;
	if (growing) {
		if (find_elsewhere(&key, now, part))
			return -EEXIST;
		fresh.word |= LIFE_RESERVED;
	}
	rc = bpf_map_update_elem(map, &key, &fresh, BPF_NOEXIST);
	if (rc == -EEXIST)
		return rc;
	if (rc) {
		rc = bpf_map_update_elem(&overflow, &key, &fresh, BPF_NOEXIST);
		if (!rc)
			__sync_fetch_and_add(&overflow_used, 1);
		return rc;
	}
	__sync_fetch_and_add(&part_used[part], 1);
	return growing ? open_growing(&key, part, fresh.word) : 0;
}

static __noinline int table_end(const struct flow4 *f)
{
	__u32 part = part_of(f);
	struct flow4 key = *f;
	struct life *e;

	e = life_in(part_map(part, PART_CURRENT), &key, 0);
	if (e && life_end(part_map(part, PART_CURRENT), &key, e)) {
		__sync_fetch_and_add(&part_used[part], -1);
		return 1;
	}
	if (part_growing[part]) {
		e = life_in(part_map(part, PART_FORMER), &key, 0);
		if (e && life_end(part_map(part, PART_FORMER), &key, e))
			return 1;
	}
	if (!overflow_used)
		return 0;
	e = life_in(&overflow, &key, 0);
	if (!e || !life_end(&overflow, &key, e))
		return 0;
	__sync_fetch_and_add(&overflow_used, -1);
	return 1;
}

struct walk {
	__u64 now;
	__u64 seen;
	__u32 part;
	__u32 left; /* of the budget */
};

static long sweep_one(void *map, const struct flow4 *key, struct life *e, struct walk *w)
{
	__u64 expires = *(volatile __u64 *)&e->expires;

	w->seen++;
	if (expires && expires <= w->now)
		table_end(key);
	return 0;
}

/* One partition. The kernel's walk has no cursor: the budget cannot be kept. */
static __always_inline __u64 table_sweep(__u32 budget, __u64 now, __u64 *more)
{
	__u32 part = part_cursor & part_mask & (MAX_PARTS - 1);
	struct walk w = { .now = now };
	void *map = part_map(part, PART_CURRENT);

	if (map)
		bpf_for_each_map_elem(map, sweep_one, &w, 0);
	map = part_growing[part] ? part_map(part, PART_FORMER) : 0;
	if (map)
		bpf_for_each_map_elem(map, sweep_one, &w, 0);
	part_cursor = part + 1;
	*more = part != part_mask;
	return w.seen;
}

/* Moves an entry from the former map to the current one. */
static long move_one(void *former, const struct flow4 *key, struct life *e, struct walk *w)
{
	void *map = part_map(w->part & (MAX_PARTS - 1), PART_CURRENT);
	__u64 expires = *(volatile __u64 *)&e->expires, word = *(volatile __u64 *)&e->word;
	struct life copy = *e, *moved;
	struct flow4 flow = *key;

	if (!map || !w->left)
		return 1;
	w->left--;
	if (!expires || word & LIFE_RESERVED)
		return 0;
	copy.expires = expires;
	copy.word = word | LIFE_RESERVED;
	if (bpf_map_update_elem(map, &flow, &copy, BPF_NOEXIST))
		return 0; /* it is opened at once, or there is no room: it stays for the next pass
			   */
	moved = bpf_map_lookup_elem(map, &flow);
	if (!moved)
		return 0;
	if (__sync_val_compare_and_swap(&e->expires, expires, 0) == expires) {
		__sync_val_compare_and_swap(&moved->word, copy.word, word);
		bpf_map_delete_elem(former, &flow);
		w->seen++;
	} else if (moved->word == copy.word) {
		life_end(map, &flow, moved);
	}
	return 0;
}

#include "bench.h"

/* The process runs this for the partition `first`, at most `count` entries at a time, until
 * nothing is left. */
SEC("tc") int move(struct __sk_buff *skb)
{
	struct request *q = request_of_cpu();
	struct walk w = {};
	void *former;
	__u64 began;

	if (!q)
		return -1;
	began = bpf_ktime_get_ns();
	w.part = q->first & (MAX_PARTS - 1);
	w.left = q->count;
	former = part_map(w.part, PART_FORMER);
	if (former)
		bpf_for_each_map_elem(former, move_one, &w, 0);
	q->ns = bpf_ktime_get_ns() - began;
	q->done = w.seen;
	q->failed = w.left;
	return 0;
}
