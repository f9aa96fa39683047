/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * When connections expire: a timing wheel with one clock for all of them.
 *
 * A slot of the wheel stands for a tick of 67 ms, and has a list of
 * appointments, each of which names a flow. Each tick the clock's timer takes
 * the list that is due, and the connections either end or get a later slot.
 * Whoever enters an appointment into a list does so by compare-and-swap, and
 * nobody but the timer takes one out, so there is no lock.
 *
 * What a connection does not keep, because it ended or wants to be looked at
 * earlier, stays where it is until its slot comes. So that these are few, no
 * slot is further away than WHEEL_REACH: who lives longer is looked at now and
 * then.
 *
 * A BPF timer for each connection would be simpler, but the kernel allocates
 * one where it may not wait for memory, and that was seen to fail at any load.
 */
#ifndef IMBANG_WHEEL_H
#define IMBANG_WHEEL_H

#include "attack.h"
#include "clock.h"
#include "flow.h"

#define WHEEL_REACH (32 * NSEC_PER_SEC / TICK)

/* CPUs that are in each other's way try again so often. */
#define WHEEL_TRIES 64

/* The link to the next in a list, of an appointment; NULL if there is no such. */
static __always_inline __u32 *appointment_next(__u32 number, __u8 family)
{
	__u32 at = number - 1;

	if (family == AF_INET6) {
		struct appointment6 *six = bpf_map_lookup_elem(&appointments6, &at);

		return six ? &six->next : 0;
	} else {
		struct appointment4 *four = bpf_map_lookup_elem(&appointments4, &at);

		return four ? &four->next : 0;
	}
}

static __always_inline struct free_appointments *free_of(__u8 family)
{
	__u32 which = family == AF_INET6;

	return bpf_map_lookup_elem(&free_lists, &which);
}

struct exchange {
	struct free_appointments *free;
	__u32 *first; /* of a slot */
	__u32 number;
	__u32 done;
	__u8 family;
};

static long appointment_try_take(__u32 i, struct exchange *e)
{
	__u64 first = *(volatile __u64 *)&e->free->first;
	__u32 *next = appointment_next(first, e->family);

	if (!(__u32)first || !next)
		return 1;
	if (__sync_val_compare_and_swap(&e->free->first, first,
					((first >> 32) + 1) << 32 | *next) != first)
		return 0;
	e->number = first;
	return 1;
}

/* Takes a free appointment: its number, or 0. */
static __noinline __u32 appointment_take(__u8 family)
{
	struct exchange e = { .free = free_of(family), .family = family };

	if (!e.free)
		return 0;
	bpf_loop(WHEEL_TRIES, appointment_try_take, &e, 0);
	if (e.number || !appointment_next(e.free->fresh + 1, family))
		return e.number;
	return __sync_fetch_and_add(&e.free->fresh, 1) + 1;
}

static long appointment_try_give(__u32 i, struct exchange *e)
{
	__u64 first = *(volatile __u64 *)&e->free->first;
	__u32 *next = appointment_next(e->number, e->family);

	if (!next)
		return 1;
	*next = first;
	return __sync_val_compare_and_swap(&e->free->first, first, first >> 32 << 32 | e->number) ==
	       first;
}

/* Gives one back that is in no list. */
static __noinline void appointment_give(__u32 number, __u8 family)
{
	struct exchange e = { .free = free_of(family), .family = family, .number = number };

	if (e.free)
		bpf_loop(WHEEL_TRIES, appointment_try_give, &e, 0);
}

static long wheel_try_enter(__u32 i, struct exchange *e)
{
	__u32 *next = appointment_next(e->number, e->family);
	__u32 first = *(volatile __u32 *)e->first;

	if (!next)
		return 1;
	*next = first;
	e->done = __sync_val_compare_and_swap(e->first, first, e->number) == first;
	return e->done;
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

/* Enters an appointment at a tick, which it returns, or 0 if that did not
 * succeed. */
static __noinline __u32 wheel_enter(__u32 number, __u8 family, __u32 tick)
{
	struct exchange e = { .family = family, .number = number };
	__u32 at = tick & (WHEEL_SLOTS - 1);
	struct wheel_slot *slot = bpf_map_lookup_elem(&wheel, &at);

	if (!slot)
		return 0;
	e.first = family == AF_INET6 ? &slot->first6 : &slot->first4;
	bpf_loop(WHEEL_TRIES, wheel_try_enter, &e, 0);
	return e.done ? tick : 0;
}

static __always_inline void appointment_write(__u32 number, const struct flow *flow)
{
	__u32 at = number - 1;

	if (flow->family == AF_INET6) {
		struct appointment6 *six = bpf_map_lookup_elem(&appointments6, &at);

		if (six)
			six->flow = *flow;
	} else {
		struct appointment4 *four = bpf_map_lookup_elem(&appointments4, &at);

		if (four)
			flow_to4(flow, &four->flow);
	}
}

/* Whose appointment it is, or was; 1 if there is such. */
static __noinline int appointment_flow(__u32 number, __u8 family, struct flow *flow)
{
	__u32 at = number - 1;

	if (family == AF_INET6) {
		struct appointment6 *six = bpf_map_lookup_elem(&appointments6, &at);

		if (six)
			*flow = six->flow;
		return !!six;
	} else {
		struct appointment4 *four = bpf_map_lookup_elem(&appointments4, &at);

		if (four)
			flow_from4(&four->flow, flow);
		return !!four;
	}
}

/* Prepares an appointment that is in no list yet: its number; 0 if there is none
 * free. */
__noinline __u32 wheel_book(const struct flow *flow)
{
	__u32 number = flow ? appointment_take(flow->family) : 0;

	if (number)
		appointment_write(number, flow);
	return number;
}

/*
 * Makes an appointment at a time [ns], or as far as the wheel reaches.
 * Returns the tick, and the number; 0 if there is none free.
 */
__noinline __u32 wheel_appoint(const struct flow *flow, __u64 time, __u64 now, __u32 *number)
{
	__u32 tick;

	if (!flow || !number)
		return 0;
	*number = wheel_book(flow);
	if (!*number)
		return 0;
	tick = wheel_enter(*number, flow->family, wheel_tick_for(time, now));
	if (!tick)
		appointment_give(*number, flow->family);
	return tick;
}

static __always_inline int conn_appointment(const struct flow *flow, __u32 number, __u64 now);

/* What is taken from a slot. */
struct wheel_list {
	__u64 now;
	__u32 next;
	__u8 family;
};

static long wheel_keep(__u32 i, struct wheel_list *list)
{
	__u32 number = list->next;
	__u32 *next = appointment_next(number, list->family);
	struct flow flow;

	if (!number || !next)
		return 1;
	list->next = *next;
	if (!appointment_flow(number, list->family, &flow) ||
	    !conn_appointment(&flow, number, list->now))
		appointment_give(number, list->family);
	return 0;
}

struct wheel_turn {
	__u32 from;
	__u64 now;
};

static long wheel_tick(__u32 i, struct wheel_turn *turn)
{
	struct wheel_list four = { .now = turn->now, .family = AF_INET };
	struct wheel_list six = { .now = turn->now, .family = AF_INET6 };
	__u32 at = (turn->from + i) & (WHEEL_SLOTS - 1);
	struct wheel_slot *slot = bpf_map_lookup_elem(&wheel, &at);

	if (!slot)
		return 1;
	/* Whoever comes late is kept when the wheel is round. */
	if (slot->first4) {
		four.next = __sync_lock_test_and_set(&slot->first4, 0);
		bpf_loop(APPOINTMENTS, wheel_keep, &four, 0);
	}
	if (slot->first6) {
		six.next = __sync_lock_test_and_set(&slot->first6, 0);
		bpf_loop(APPOINTMENTS, wheel_keep, &six, 0);
	}
	return 0;
}

static int wheel_timer(void *map, __u32 *key, struct clock *c)
{
	__u64 now = bpf_ktime_get_ns();
	struct wheel_turn turn = { .from = c->tick + 1, .now = now };
	__u32 present = tick_after(now) - 1;
	__u32 behind = present - c->tick;

	if ((__s32)behind > 0) {
		if (behind > WHEEL_SLOTS)
			behind = WHEEL_SLOTS;
		bpf_loop(behind, wheel_tick, &turn, 0);
		c->tick = present;
		attack_judge(now);
	}
	bpf_timer_start(&c->timer, TICK, 0);
	return 0;
}

static __always_inline int wheel_start(void)
{
	return clock_start(CLOCK_WHEEL, wheel_timer, TICK);
}

#endif
