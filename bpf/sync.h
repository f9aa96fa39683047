/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which connections and templates backups are to know of, and when: Linux's rule
 * (ip_vs_sync_conn_needed), applied to each packet of a client while a process tells
 * backups (settings.syncing). What it selects is an event for followers (FOLLOW_TELL).
 * Of connections it selects none while all of these processes are told of openings, changes of
 * state and ends: those are events of their own.
 *
 * A packet that the rule may select leaves the fast path; all others only compare.
 *
 * One thing differs: Linux selects a template with every packet of its connections, this
 * once a second (or once in 1/2000 of its timeout, if that is longer). A backup's copy of the
 * template then ends at most so much earlier.
 */
#ifndef IMBANG_SYNC_H
#define IMBANG_SYNC_H

#include "conn_entry.h"
#include "conn_state.h"
#include "follow.h"
#include "settings.h"
#include "template.h"

/* The least that sync_refresh_period is compared with [ns]. */
#define SYNC_LEAST_REFRESH (10 * NSEC_PER_SEC)

/* How many packets a client has sent, with this one. Without synchronization only
 * drop_entry needs it, up to MANY_PACKETS. The count goes on in 16 bits: where they end it
 * leaves out a multiple of sync_period. */
static __always_inline __u16 packets_after(__u16 packets, const struct settings *set)
{
	__u32 period = set->sync_period;

	if (packets < MANY_PACKETS)
		return packets + 1;
	if (!set->syncing)
		return packets;
	if (packets < 0xffff)
		return packets + 1;
	if (!period)
		return packets;
	return 0x10000 % period + (period < MANY_PACKETS ? MANY_PACKETS * period : period);
}

/* Whether the state that a connection is in now has to be told whatever its packets:
 * another one than backups know. */
static __always_inline int sync_by_state(const struct conn *c, __u8 state)
{
	return !is_established(state) && state != CONN_UDP && told_code(state) != told_state(c);
}

static __always_inline int sync_by_packets(__u32 packets, const struct settings *set)
{
	if (set->sync_period)
		return packets % set->sync_period == set->sync_threshold;
	return set->sync_refresh_period || packets == set->sync_threshold;
}

/* Whether the rule may select a connection that is in a state, with so many packets:
 * asked before the packet changes any table. A persistent one has a template to be told of. */
static __always_inline int sync_may_select(struct conn *c, const struct conn *seen, __u8 state,
					   __u32 packets, const struct settings *set)
{
	if (seen->template)
		return 1;
	if (set->syncing == SYNCING_TEMPLATES)
		return 0;
	if (!(TOLD_STATES & STATE_BIT(state & 31)))
		return 0;
	return sync_by_state(c, state) || sync_by_packets(packets, set);
}

/* What is to be decided of an entry under its claim. */
struct sync_question {
	__u64 now;     /* [ns] */
	__u32 packets; /* of a connection's client; of a template its own are counted */
	__u32 server;  /* that a template must have; NO_SERVER: any entry */
};

/* After how long they are told again of the same end; longer than an end stays the same if
 * they never are [units]. */
static __always_inline __u32 sync_repeats(__u64 period, __u32 unit)
{
	__u64 wait = period >> 3 >> unit;

	return wait < 0x7fff ? wait : 0x7fff;
}

/* What told_end becomes if backups are told now; 0: they are not told again yet
 * (sync_refresh_period, sync_retries). */
static __always_inline __u16 sync_end(const struct conn *c, __u64 now, __u64 timeout, __u32 unit,
				      const struct settings *set)
{
	__u64 period = set->sync_refresh_period * NSEC_PER_SEC, least = SYNC_LEAST_REFRESH;
	__u16 end = told_time(now + timeout, unit), told = c->told_end & ~TOLD_REPETITIONS;
	__u32 repetitions = c->told_end & TOLD_REPETITIONS;
	__s32 moved = (__s16)(end - told);

	if (!period || !c->told_end || told_replica(c))
		return end;
	if (least < timeout >> 1)
		least = timeout >> 1;
	if (period < least)
		least = period;
	least >>= unit;
	if (least <= TOLD_REPETITIONS)
		least = TOLD_REPETITIONS + 1; /* by which ends differ */
	if (moved >= (__s32)least || -moved >= (__s32)least)
		return end;
	if (repetitions >= set->sync_retries || repetitions >= TOLD_REPETITIONS)
		return 0;
	if ((__s32)(__s16)(((now + timeout) >> unit) - told) < (__s32)sync_repeats(period, unit))
		return 0;
	return end | (repetitions + 1);
}

/* Under the claim: whether a connection is told of. */
static __always_inline int sync_selects(struct conn *c, const struct sync_question *q,
					const struct settings *set)
{
	__u64 timeout = set->timeout[c->state & 31];
	__u32 unit = told_unit(timeout);
	__u8 state = c->state;
	__u16 end;

	if (set->syncing == SYNCING_TEMPLATES || !(TOLD_STATES & STATE_BIT(state & 31)) ||
	    (set->sync_persist_mode && c->template))
		return 0;
	end = told_time(q->now + timeout, unit);
	if (!sync_by_state(c, state)) {
		end = sync_end(c, q->now, timeout, unit, set);
		if (!end || !sync_by_packets(q->packets, set))
			return 0;
	}
	told_note(c, end, told_code(state), 0);
	return 1;
}

/* Whether backups were told of a template within a second, or within the time by which ends
 * differ. */
static __always_inline int sync_just_told(const struct conn *c, __u64 now, __u64 timeout,
					  __u32 unit)
{
	__s16 since = ((now + timeout) >> unit) - (c->told_end & ~TOLD_REPETITIONS);
	__s32 long_ago = NSEC_PER_SEC >> unit;

	if (long_ago <= TOLD_REPETITIONS)
		long_ago = TOLD_REPETITIONS + 1;
	return c->told_end && !told_replica(c) && since < long_ago;
}

/* Likewise, a template. */
static __always_inline int sync_selects_template(struct conn *c, const struct sync_question *q,
						 const struct settings *set)
{
	__u32 assured = !!(c->flags & CONN_ASSURED), unit;
	__u64 timeout = c->timeout * NSEC_PER_SEC;
	__u16 end;

	unit = told_unit(timeout);
	c->in_packets = packets_after(c->in_packets, set);
	end = sync_end(c, q->now, timeout, unit, set);
	if (!end)
		return 0;
	if (!set->sync_period && !set->sync_refresh_period && c->in_packets != set->sync_threshold)
		return 0;
	if (!set->sync_refresh_period && told_state(c) == assured &&
	    sync_just_told(c, q->now, timeout, unit))
		return 0;
	told_note(c, end, assured, 0);
	return 1;
}

/* Whether the entry of a flow is told of now; what controls it. */
__noinline int sync_decide(const struct flow *flow, const struct sync_question *q,
			   struct control *control)
{
	struct settings *set = get_settings();
	int selected = 0;
	struct conn *c;
	__u32 claim;

	if (!flow || !q || !control)
		return 0;
	c = conn_claim(flow, &claim);
	if (!c)
		return 0;
	if (conn_lives(c) && (q->server == NO_SERVER || c->server == q->server)) {
		selected =
			flow->template ? sync_selects_template(c, q, set) : sync_selects(c, q, set);
		*control = control_of(c);
	}
	bucket_release(claim);
	return selected;
}

/* Whether the entry of a flow leads to a server. */
static __noinline int sync_leads(const struct flow *flow, __u32 server)
{
	struct conn seen = {};

	return conn_look(flow, &seen) && seen.server == server;
}

/* The template that controls a connection: the valid one if that leads to its server, or
 * the one that was set aside. */
static __noinline void sync_template(const struct flow *flow, const struct control *control,
				     struct sync_question *q)
{
	struct control none = {};
	struct flow key;

	q->server = control->server;
	control_key(flow, control, &key);
	if (!sync_leads(&key, control->server) && control->kind != TEMPLATE_CALL)
		template_set_aside(&key, control->server);
	if (sync_decide(&key, q, &none))
		follow_tell(&key, 0, FOLLOW_TELL, 0);
}

/* A client's packet that goes to its server: tells of its connection, and of that one's
 * template. `packets` is 0 while no process tells backups. */
__noinline int sync_packet(const struct packet *p)
{
	struct sync_question q = { .server = NO_SERVER };
	struct settings *set = get_settings();
	struct control control = {};

	if (!p || !p->packets || !followed())
		return 0;
	q.packets = p->packets;
	q.now = now_coarse_ns();
	if (sync_decide(&p->flow, &q, &control))
		follow_tell(&p->flow, 0, FOLLOW_TELL, 0);
	else if (!set->sync_version && set->syncing == SYNCING_ALL)
		return 0; /* ip_vs_sync_conn_v0: templates come with connections that are told */
	if (control.kind)
		sync_template(&p->flow, &control, &q);
	return 0;
}

/* A template whose time is over controls connections still, and gets a minute
 * (expire_later of ip_vs_conn_expire). */
static __always_inline void sync_linger(const struct flow *flow)
{
	if (get_settings()->syncing)
		follow_tell(flow, 0, FOLLOW_TELL, 0);
}

#endif
