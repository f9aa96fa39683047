/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * When connections expire: a timing wheel with one clock for all of them.
 *
 * A slot of the wheel stands for a tick of 67 ms. An appointment is an entry
 * (slot, number) -> flow in the table of appointments; the slot counts how
 * many there are. Each tick the clock's timer keeps the appointments that are
 * due, and the connection either ends or gets a later one.
 *
 * A BPF timer for each connection would be simpler, but the kernel allocates
 * one where it may not wait for memory, and that was seen to fail at any load.
 */
#ifndef IMBANG_WHEEL_H
#define IMBANG_WHEEL_H

#include "attack.h"
#include "clock.h"
#include "flow.h"

/*
 * Makes an appointment at a time [ns], or as far as the wheel reaches.
 * Returns the tick, and the number in its slot; 0 if there is no memory for it.
 */
__noinline __u32 wheel_appoint(const struct flow *flow, __u64 time, __u64 now, __u32 *number)
{
	__u32 tick = tick_after(time);
	__u32 present = tick_after(now);
	struct appointment key;
	__u32 *count;

	if (!flow || !number)
		return 0;
	/* Not in a slot that the clock may be at. */
	if ((__s32)(tick - present) < 1)
		tick = present + 1;
	/* Far from the slots that a late clock has yet to come to. */
	if (tick - present > WHEEL_SLOTS / 2)
		tick = present + WHEEL_SLOTS / 2;
	key.slot = tick & (WHEEL_SLOTS - 1);
	count = bpf_map_lookup_elem(&wheel, &key.slot);
	if (!count)
		return 0;
	key.number = __sync_fetch_and_add(count, 1);
	if (appointment_put(&key, flow))
		return 0;
	*number = key.number;
	return tick;
}

/* Calls an appointment off, if it is still the flow's. */
__noinline int wheel_cancel(const struct flow *flow, __u32 tick, __u32 number)
{
	struct appointment key = { .slot = tick & (WHEEL_SLOTS - 1), .number = number };
	struct flow found;

	if (flow && appointment_find(&key, &found) && flow_equal(&found, flow))
		appointment_forget(&key, found.family);
	return 0;
}

static __always_inline void conn_appointment(const struct flow *flow, __u32 tick, __u64 now);

struct wheel_slot {
	struct appointment key;
	__u32 tick;
	__u64 now;
};

static long wheel_keep(__u32 number, struct wheel_slot *s)
{
	struct flow flow;

	s->key.number = number;
	if (!appointment_find(&s->key, &flow))
		return 0;
	appointment_forget(&s->key, flow.family);
	conn_appointment(&flow, s->tick, s->now);
	return 0;
}

struct wheel_turn {
	__u32 from;
	__u64 now;
};

static long wheel_tick(__u32 i, struct wheel_turn *turn)
{
	struct wheel_slot s = {
		.tick = turn->from + i,
		.now = turn->now,
		.key.slot = (turn->from + i) & (WHEEL_SLOTS - 1),
	};
	__u32 *count = bpf_map_lookup_elem(&wheel, &s.key.slot);
	__u32 n;

	if (!count || !*count)
		return 0;
	/* Whoever comes late is kept when the wheel is round. */
	n = __sync_lock_test_and_set(count, 0);
	bpf_loop(n, wheel_keep, &s, 0);
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
