/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Connections and templates expire: each tick the wheel's timer takes the timer
 * entries that are due; their connections either end or get a later entry.
 */
#ifndef IMBANG_EXPIRY_H
#define IMBANG_EXPIRY_H

#include "attack.h"
#include "conn_life.h"
#include "removal.h"
#include "sync.h"
#include "template.h"
#include "wheel.h"

/* The wheel has come to a timer entry of this flow: 1 if it is to be kept once
 * more, and was entered for that. */
static __always_inline int conn_timer_entry(const struct flow *flow, __u32 number, __u64 now)
{
	struct conn seen;

	switch (conn_due(flow, number, now, &seen)) {
	case DUE_NOTHING:
		return 0;
	case DUE_OVER:
		if (!(seen.flags & CONN_DEAD)) { /* else the CPU did that which left it */
			conn_release(flow, &seen);
			follow_tell(flow, &seen, FOLLOW_CLOSE, 0);
		}
		if (!conn_clear(flow, &seen))
			return 0;
		break;
	case DUE_KEPT:
		break;
	}
	wheel_enter(number, flow->family, tick_near(seen.due, now));
	if (template_lingers(flow, &seen, now))
		sync_linger(flow);
	return 1;
}

/* What is taken from a slot. */
struct wheel_list {
	__u64 now;
	__u32 next;
	__u8 family;
};

static long wheel_keep(__u32 i, struct wheel_list *list)
{
	__u32 number = list->next;
	__u32 *next = timer_entry_next(number, list->family);
	struct flow flow;

	if (!number || !next)
		return 1;
	list->next = *next;
	if (!timer_entry_flow(number, list->family, &flow) ||
	    !conn_timer_entry(&flow, number, list->now))
		timer_entry_give(number, list->family);
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
	__u32 tick = turn->from + i;
	struct wheel_slot *slot = wheel_slot_of(tick);
	struct clock *c = wheel_clock();
	struct wheel_due due;

	if (!slot || !c)
		return 1;
	/* First: see wheel.h. */
	*(volatile __u32 *)&c->tick = tick;
	due = wheel_take(slot);
	if (due.first4) {
		four.next = due.first4;
		bpf_loop(TIMER_ENTRIES, wheel_keep, &four, 0);
	}
	if (due.first6) {
		six.next = due.first6;
		bpf_loop(TIMER_ENTRIES, wheel_keep, &six, 0);
	}
	return 0;
}

static int wheel_timer(void *map, __u32 *key, struct clock *c)
{
	__u64 now = now_ns();
	struct wheel_turn turn = { .from = c->tick + 1, .now = now };
	__u32 present = tick_after(now) - 1;
	__u32 behind = present - c->tick;

	if (clock_ends())
		return 0;
	if ((__s32)behind > 0) {
		/* More than a revolution behind, one of them takes every list. */
		if (behind > WHEEL_SLOTS) {
			behind = WHEEL_SLOTS;
			turn.from = present - WHEEL_SLOTS + 1;
		}
		bpf_loop(behind, wheel_tick, &turn, 0);
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
