// SPDX-License-Identifier: GPL-2.0-only
/*
 * The table as it is: the headers of the data plane, without servers, templates and replies. A
 * hash with a spin lock in each element, a timing wheel, and free lists of timer entries.
 * Its invariants are in conn_entry.h, conn.h and wheel.h.
 */
#include "kernel.h"
#include "conn.h"
#include "flows.h"

static __always_inline int table_find(const struct flow4 *f, __u64 now)
{
	union conn_key key = { .four = *f };
	struct conn4 *found = bpf_map_lookup_elem(&conns4, &key.four);
	struct conn seen;

	if (!found || !conn_read((void *)found + CONN4_FIELDS, &key, &seen, AF_INET))
		return 0;
	return truth(seen.expires);
}

static __noinline int table_open(const struct flow4 *f, __u64 now, __u64 timeout)
{
	struct conn fresh = { .state = TCP_SYN_RECV, .in_packets = 1 };
	struct flow flow;

	flow_from4(f, &flow);
	return conn_insert(&flow, &fresh, timeout, 0);
}

static __noinline int table_end(const struct flow4 *f)
{
	struct conn seen = {};
	struct flow flow;

	flow_from4(f, &flow);
	if (!conn_kill(&flow, &seen, 0))
		return 0;
	conn_forget(&flow);
	return 1;
}

struct turn {
	__u64 now;
	__u64 seen;
	__u32 next;
};

/* As wheel_keep and conn_timer_entry. */
static long turn_one(__u32 i, struct turn *t)
{
	__u32 number = t->next, *next = timer_entry_next(number, AF_INET);
	struct flow flow;
	struct conn seen;

	if (!number || !next)
		return 1;
	t->next = *next;
	t->seen++;
	if (timer_entry_flow(number, AF_INET, &flow)) {
		switch (conn_due(&flow, number, t->now, &seen)) {
		case DUE_KEPT:
			wheel_enter(number, AF_INET, tick_near(seen.due, t->now));
			return 0;
		case DUE_OVER:
			conn_forget(&flow);
			break;
		case DUE_NOTHING:
			break;
		}
	}
	timer_entry_give(number, AF_INET);
	return 0;
}

/* One slot: what the timer's callback does each 67 ms. It has no budget. */
static __always_inline __u64 table_sweep(__u32 budget, __u64 now, __u64 *more)
{
	__u32 present = tick_after(now) - 1, tick;
	struct clock *c = wheel_clock();
	struct turn t = { .now = now };
	struct wheel_slot *slot;

	if (!c || (__s32)(present - c->tick) <= 0)
		return 0;
	tick = c->tick + 1;
	if (present - c->tick > WHEEL_SLOTS)
		tick = present - WHEEL_SLOTS + 1;
	slot = wheel_slot_of(tick);
	if (!slot)
		return 0;
	*(volatile __u32 *)&c->tick = tick;
	t.next = wheel_take(slot).first4;
	bpf_loop(TIMER_ENTRIES, turn_one, &t, 0);
	*more = tick != present;
	return t.seen;
}

#include "bench.h"
