/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Entries of the connection table, of connections and of templates: inserted,
 * extended, taken back.
 *
 * A packet moves `expires` and nothing else: the connection keeps its
 * timer entry on the wheel, and gets a later one when that is due. Only a
 * connection that is to end much earlier makes another, so a settled
 * connection's packets cost no more than a store.
 *
 * Each connection names the timer entry that it keeps, and invariants are:
 * 1. The entry that a connection names is in a slot, or in the hands of a CPU
 *    that will enter it into one. So it is named before it is entered, as the wheel
 *    frees an entry that the connection of its flow does not name. That a connection is
 *    dead changes nothing: the wheel keeps its entry until it is removed.
 * 2. Only an entry that no other CPU holds is given back.
 * 3. A connection that inherits the entry of its flow's earlier one is inserted
 *    first. If the list of that entry's tick is still to be taken then, the wheel will
 *    find the connection; else the entry may be free or another's, and the
 *    connection gets one of its own.
 * 4. The tick that a connection names is never later than that of its entry. It is
 *    earlier if the CPU that entered it was stopped for so long that the tick passed;
 *    a connection whose timeout is shortened then may end later by as much.
 */
#ifndef IMBANG_CONN_H
#define IMBANG_CONN_H

#include "clock.h"
#include "conn_entry.h"
#include "defence.h"
#include "flow.h"
#include "hook.h"
#include "wheel.h"

/* How much `expires` may lag behind: both directions write it. */
#define EXPIRY_SLACK (NSEC_PER_SEC / 4)

/* The flow of the server's replies. */
static __always_inline void conn_reverse_flow(const struct flow *flow, const struct conn *c,
					      const struct server *s, struct flow *reverse)
{
	reverse->src = s->addr;
	reverse->dst = flow->src;
	reverse->sport = c->port;
	reverse->dport = flow->sport;
	reverse->protocol = flow->protocol;
	reverse->template = 0;
	reverse->family = flow->family;
	reverse->pad = 0;
}

/* When a connection is to end that lives for another `timeout` [ns]; 0 if that is
 * about when it does anyway: both directions write there, spare the cache line. */
static __always_inline __u64 conn_later(const struct conn *c, __u64 now, __u64 timeout)
{
	__u64 expires = now + timeout;
	__s64 moved = expires - c->expires;

	return moved > -(__s64)EXPIRY_SLACK && moved < (__s64)EXPIRY_SLACK ? 0 : expires;
}

/* Makes another timer entry for a connection, in place of the one that `to` says;
 * -ENOMEM if none is free. */
static __always_inline int conn_book(const struct flow *flow, struct timer_change *to,
				     __u64 expires)
{
	to->number = wheel_book(flow);
	if (!to->number)
		return -ENOMEM;
	to->tick = wheel_tick_for(expires, now_coarse_ns());
	if (conn_name(flow, to))
		wheel_enter(to->number, flow->family, to->tick);
	else
		timer_entry_give(to->number, flow->family);
	return 0;
}

/* For a connection that is to end earlier than its timer entry is due, unless its state has
 * changed. */
static __noinline void conn_hasten(const struct flow *flow, __u64 expires, __u32 state)
{
	struct timer_change to = { .expires = expires, .state = state };

	HOOK(CONN_EXTEND);
	conn_book(flow, &to, expires);
}

/* For one that inherited a timer entry for which the wheel was faster: -ENOMEM if none is
 * free. */
static __noinline int conn_disinherit(const struct flow *flow, __u64 expires, __u32 number)
{
	struct timer_change to = { .instead = number };

	return conn_book(flow, &to, expires);
}

/* Leaves a dead entry that the kernel did not let this CPU remove to the wheel: for the next
 * tick, or without a free timer entry for when its own is due, in WHEEL_REACH at most. */
static __noinline void conn_leave(const struct flow *flow)
{
	struct timer_change to = {};

	to.owned = CONN_DEAD; /* in an initializer it would need a map of constants */
	if (conn_book(flow, &to, 0))
		conn_name(flow, &to);
}

/* Has the connection of which this was seen end at `expires` [ns], as the state says which
 * it is in now. */
static __always_inline void conn_end_at(const struct flow *flow, const struct conn *seen,
					__u64 expires, __u32 state)
{
	if (!timer_entry_before(seen, expires, now_coarse_ns()) ||
	    !conn_delay(flow, expires, state))
		conn_hasten(flow, expires, state);
}

/* Lets it live for another `timeout` [ns] in the state that it was seen in. */
static __always_inline void conn_extend(const struct flow *flow, const struct conn *seen,
					__u64 timeout, __u32 state)
{
	__u64 expires = conn_later(seen, time_coarse(), timeout);

	if (expires)
		conn_end_at(flow, seen, expires, state);
}

/* Whether a timer entry that was inherited will do: the entry is there, and the
 * time of the timer entry still to come. */
static __always_inline int timer_entry_serves(const struct conn *fresh, __u64 now)
{
	__u32 due = tick_near(fresh->due, now);

	return fresh->number && (__s32)(due - tick_after(now)) > 1 &&
	       (__s32)(due - tick_after(fresh->expires)) <= 0;
}

/* An entry could not be put into the table: an error, which is -EEXIST if another CPU was
 * first. A function, for the stack's sake. */
static __noinline int conn_refused(const struct flow *flow, const struct conn *fresh, int rc)
{
	entry_counted(flow, fresh->server, fresh->flags, -1);
	if (conn_exists(flow))
		return -EEXIST;
	defence_alarm();
	return rc;
}

/*
 * Puts an entry into the table and makes a timer entry for it: 0, or not when
 * there is no room (-E2BIG), or when another CPU was first (-EEXIST). The timer entry enters its
 * list last: a full table must not leave any behind that crowd out others'. `inherits`:
 * its flow's earlier connection may have left it one. Only then it may be in the table
 * without a timer entry, as none is free (-ENOENT): the caller removes it.
 */
static __always_inline int conn_insert(const struct flow *flow, struct conn *fresh, __u64 timeout,
				       int inherits)
{
	__u64 now = now_coarse_ns();
	__u32 booked = 0;
	int rc;

	fresh->expires = now + timeout;
	if (!inherits || !timer_entry_serves(fresh, now)) {
		booked = wheel_book(flow);
		if (!booked) {
			defence_alarm();
			return -E2BIG;
		}
		fresh->number = booked;
		fresh->due = wheel_tick_for(fresh->expires, now);
	}
	HOOK(CONN_INSERT);
	entry_counted(flow, fresh->server, fresh->flags, 1);
	rc = conn_put(flow, fresh);
	if (rc) {
		if (booked)
			timer_entry_give(booked, flow->family);
		return conn_refused(flow, fresh, rc);
	}
	HOOK(CONN_INSERTED);
	if (!inherits || booked) {
		wheel_enter(booked, flow->family, tick_near(fresh->due, now));
		return 0;
	}
	if (wheel_awaits(tick_near(fresh->due, now)))
		return 0;
	return conn_disinherit(flow, fresh->expires, fresh->number) ? -ENOENT : 0;
}

#endif
