/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * When connections expire: a timing wheel with one clock for all of them.
 *
 * A slot of the wheel stands for a tick of 67 ms, and has a list of
 * timer entries, each of which names a flow. Each tick the clock's timer takes
 * the list that is due, and the connections either end or get a later slot.
 *
 * What a connection does not keep, because it ended or must be examined
 * earlier, stays where it is until its slot is due. So that these are few, no
 * slot is further away than WHEEL_REACH: connections that live longer are
 * examined repeatedly.
 *
 * Invariants:
 * 1. A timer entry is in one place: a free list, a slot's list, or the hands of
 *    one CPU, which took it from a free list (to enter it into a slot) or from a
 *    slot (the wheel's timer alone).
 * 2. Lists change under the spin lock of the slot or of the free list. Under it
 *    only links are written, so no CPU waits for long, and neither entering nor
 *    freeing can fail.
 * 3. The clock's `tick` is set before the list of that tick is taken. A CPU that
 *    holds a slot's lock and finds its tick still to come therefore knows that
 *    the list will be taken later; what is entered is never left for a
 *    revolution.
 * 4. A free entry is found if there is one: a CPU begins with the list of its
 *    own number and goes on to all others.
 *
 * A BPF timer for each connection would be simpler, but the kernel allocates
 * one where it may not wait for memory, and that was seen to fail at any load.
 */
#ifndef IMBANG_WHEEL_H
#define IMBANG_WHEEL_H

#include "clock.h"
#include "flow.h"
#include "hook.h"

#define WHEEL_REACH (32 * NSEC_PER_SEC / TICK)

/* How often a CPU goes around the free lists, at most. */
#define WHEEL_TRIES 4

/* Ticks that a CPU is given that was overtaken twice: 4 s. */
#define WHEEL_MARGIN 64

/* Neighbouring timer entries of one free list: they share cache lines. */
#define FREE_BLOCK_BITS 4
#define FREE_BLOCK (1 << FREE_BLOCK_BITS)

/* The link to the next in a list, of a timer entry; NULL if there is no such. */
static __always_inline __u32 *timer_entry_next(__u32 number, __u8 family)
{
	__u32 at = (number - 1) / 2, half = (number - 1) & 1;

	if (family == AF_INET6) {
		struct timer_pair6 *six = bpf_map_lookup_elem(&timer_entries6, &at);

		return six ? &six->next[half] : 0;
	} else {
		struct timer_pair4 *four = bpf_map_lookup_elem(&timer_entries4, &at);

		return four ? &four->next[half] : 0;
	}
}

static __always_inline struct free_timer_entries *free_list_of(__u32 list, __u8 family)
{
	__u32 at = list % FREE_LISTS + (family == AF_INET6 ? FREE_LISTS : 0);

	return bpf_map_lookup_elem(&free_lists, &at);
}

/* The n-th timer entry of a free list, from 0. */
static __always_inline __u32 timer_entry_number(__u32 list, __u32 n)
{
	__u32 block = n / FREE_BLOCK * FREE_LISTS + list % FREE_LISTS;

	return 1 + block * FREE_BLOCK + n % FREE_BLOCK;
}

/* The free list that an entry belongs to. */
static __always_inline __u32 timer_entry_list(__u32 number)
{
	return (number - 1) / FREE_BLOCK;
}

/* The first of a free list: its number, or 0 if the list is empty or another CPU
 * interfered. */
static __always_inline __u32 timer_entry_pop(struct free_timer_entries *free, __u8 family)
{
	__u32 first = *(volatile __u32 *)&free->first, number = 0;
	__u32 *next = timer_entry_next(first, family);

	if (!first || !next)
		return 0;
	HOOK(ENTRY_TAKE);
	bpf_spin_lock(&free->lock);
	if (free->first == first) {
		free->first = *next;
		number = first;
	}
	bpf_spin_unlock(&free->lock);
	return number;
}

/* One of a list that was never taken, or 0. */
static __always_inline __u32 timer_entry_fresh(struct free_timer_entries *free, __u32 list,
					       __u8 family)
{
	__u32 number = timer_entry_number(list, *(volatile __u32 *)&free->fresh);

	if (!timer_entry_next(number, family))
		return 0;
	number = timer_entry_number(list, __sync_fetch_and_add(&free->fresh, 1));
	return timer_entry_next(number, family) ? number : 0;
}

struct timer_entry_search {
	__u32 list;
	__u32 number;
	__u8 family;
};

static long timer_entry_try(__u32 i, struct timer_entry_search *s)
{
	struct free_timer_entries *free = free_list_of(s->list + i, s->family);

	if (!free)
		return 1;
	s->number = timer_entry_pop(free, s->family);
	if (s->number)
		return 1;
	if (*(volatile __u32 *)&free->first)
		s->list--; /* another CPU was faster: the same one again */
	else
		s->number = timer_entry_fresh(free, s->list + i, s->family);
	return !!s->number;
}

/* Takes a free timer entry: its number, or 0. */
static __always_inline __u32 timer_entry_take(__u8 family)
{
	struct timer_entry_search s = { .list = bpf_get_smp_processor_id(), .family = family };

	bpf_loop(TRIES(WHEEL_TRIES) * FREE_LISTS, timer_entry_try, &s, 0);
	return s.number;
}

/* Marks an entry as free in what says its kind of flow, for the auditor: no
 * connection's flow is like that. Booking it writes all of the flow. */
static __always_inline void timer_entry_mark_free(__u32 number, __u8 family)
{
	__u32 at = (number - 1) / 2, half = (number - 1) & 1;

	if (family == AF_INET6) {
		struct timer_pair6 *six = bpf_map_lookup_elem(&timer_entries6, &at);

		if (six)
			six->flow[half].template = TIMER_ENTRY_FREE;
	} else {
		struct timer_pair4 *four = bpf_map_lookup_elem(&timer_entries4, &at);

		if (four)
			four->flow[half].template = TIMER_ENTRY_FREE;
	}
}

/* Gives one back that is in no list. */
__noinline int timer_entry_give(__u32 number, __u8 family)
{
	struct free_timer_entries *free = free_list_of(timer_entry_list(number), family);
	__u32 *next = timer_entry_next(number, family);

	if (!free || !next)
		return 0;
	timer_entry_mark_free(number, family);
	HOOK(ENTRY_GIVE);
	bpf_spin_lock(&free->lock);
	*next = free->first;
	free->first = number;
	bpf_spin_unlock(&free->lock);
	return 0;
}

/* The tick for a time [ns], or as far as the wheel reaches; not one that the
 * clock may be at. */
static __always_inline __u32 wheel_tick_for(__u64 time, __u64 now)
{
	__u32 tick = tick_after(time), present = tick_after(now);

	if ((__s32)(tick - present) < 1)
		return present + 1;
	return tick - present > WHEEL_REACH ? present + WHEEL_REACH : tick;
}

static __always_inline struct clock *wheel_clock(void)
{
	__u32 id = CLOCK_WHEEL;

	return bpf_map_lookup_elem(&clocks, &id);
}

/* Whether the list of a tick was taken, or is about to be. */
static __always_inline int wheel_passed(const struct clock *c, __u32 tick)
{
	return (__s32)(*(volatile __u32 *)&c->tick - tick) >= 0;
}

static __always_inline struct wheel_slot *wheel_slot_of(__u32 tick)
{
	__u32 at = tick & (WHEEL_SLOTS - 1);

	return bpf_map_lookup_elem(&wheel, &at);
}

/* Enters a timer entry at a tick, unless that has passed; with `late` in any case. */
static __always_inline int wheel_try_enter(__u32 number, __u8 family, __u32 tick, int late)
{
	__u32 *next = timer_entry_next(number, family);
	struct wheel_slot *slot = wheel_slot_of(tick);
	const struct clock *c = wheel_clock();
	int entered = 0;

	if (!next || !slot || !c)
		return 1;
	HOOK(WHEEL_ENTER);
	bpf_spin_lock(&slot->lock);
	if (late || !wheel_passed(c, tick)) {
		if (family == AF_INET6) {
			*next = slot->first6;
			slot->first6 = number;
		} else {
			*next = slot->first4;
			slot->first4 = number;
		}
		entered = 1;
	}
	bpf_spin_unlock(&slot->lock);
	return entered;
}

/* The next tick that is surely to come, unless this CPU stops for one. */
static __always_inline __u32 wheel_next(void)
{
	const struct clock *c = wheel_clock();

	return c ? *(volatile __u32 *)&c->tick + 2 : 0;
}

/*
 * Enters a timer entry at a tick, or at a later one if that has passed meanwhile. If the
 * wheel overtakes it three times, by seconds at last, it stays for a revolution (137 s):
 * it is better late than lost.
 */
__noinline int wheel_enter(__u32 number, __u8 family, __u32 tick)
{
	if (wheel_try_enter(number, family, tick, 0) ||
	    wheel_try_enter(number, family, wheel_next(), 0))
		return 0;
	return wheel_try_enter(number, family, wheel_next() + WHEEL_MARGIN, 1);
}

/* Whether the list of a tick is still to be taken. */
static __noinline int wheel_awaits(__u32 tick)
{
	struct wheel_slot *slot = wheel_slot_of(tick);
	const struct clock *c = wheel_clock();
	int passed;

	if (!slot || !c)
		return 0;
	bpf_spin_lock(&slot->lock);
	passed = wheel_passed(c, tick);
	bpf_spin_unlock(&slot->lock);
	return !passed;
}

/* The lists of a slot, which then are empty. */
struct wheel_due {
	__u32 first4;
	__u32 first6;
};

static __always_inline struct wheel_due wheel_take(struct wheel_slot *slot)
{
	struct wheel_due due;

	bpf_spin_lock(&slot->lock);
	due.first4 = slot->first4;
	due.first6 = slot->first6;
	slot->first4 = 0;
	slot->first6 = 0;
	bpf_spin_unlock(&slot->lock);
	return due;
}

static __always_inline void timer_entry_write(__u32 number, const struct flow *flow)
{
	__u32 at = (number - 1) / 2, half = (number - 1) & 1;

	if (flow->family == AF_INET6) {
		struct timer_pair6 *six = bpf_map_lookup_elem(&timer_entries6, &at);

		if (six)
			six->flow[half] = *flow;
	} else {
		struct timer_pair4 *four = bpf_map_lookup_elem(&timer_entries4, &at);

		if (four)
			flow_to4(flow, &four->flow[half]);
	}
}

/* Gives the timer entry of a connection that has ended, and that named this tick for it, to
 * another flow, if the list of that tick is still to be taken: 1, or 0. Only the wheel
 * uses the entry then, and reads the flow behind that list's lock. */
__noinline int timer_entry_assume(__u32 number, const struct flow *flow, __u32 tick)
{
	__u32 at = (number - 1) / 2, half = (number - 1) & 1;
	struct wheel_slot *slot = wheel_slot_of(tick);
	const struct clock *c = wheel_clock();
	struct timer_pair4 *four = 0;
	struct timer_pair6 *six = 0;
	struct flow4 flow4;
	int passed;

	if (!flow || !slot || !c)
		return 0;
	if (flow->family == AF_INET6)
		six = bpf_map_lookup_elem(&timer_entries6, &at);
	else
		four = bpf_map_lookup_elem(&timer_entries4, &at);
	flow_to4(flow, &flow4);
	bpf_spin_lock(&slot->lock);
	passed = wheel_passed(c, tick);
	if (!passed && six)
		six->flow[half] = *flow;
	if (!passed && four)
		four->flow[half] = flow4;
	bpf_spin_unlock(&slot->lock);
	return !passed;
}

/* Whose timer entry it is, or was; 1 if there is such. */
static __noinline int timer_entry_flow(__u32 number, __u8 family, struct flow *flow)
{
	__u32 at = (number - 1) / 2, half = (number - 1) & 1;

	if (family == AF_INET6) {
		struct timer_pair6 *six = bpf_map_lookup_elem(&timer_entries6, &at);

		if (six)
			*flow = six->flow[half];
		return !!six;
	} else {
		struct timer_pair4 *four = bpf_map_lookup_elem(&timer_entries4, &at);

		if (four)
			flow_from4(&four->flow[half], flow);
		return !!four;
	}
}

/* Prepares a timer entry that is in no list yet: its number; 0 if there is none
 * free. */
FRAMELESS_IN_VARIANT __u32 wheel_book(const struct flow *flow)
{
	__u32 number;

	if (!flow)
		return 0;
	number = timer_entry_take(flow->family);
	if (number)
		timer_entry_write(number, flow);
	return number;
}

#endif
