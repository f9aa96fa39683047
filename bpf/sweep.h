/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The defence mode drop_entry: each second a random 1/32 of the table is looked
 * at, and ends if little is lost with it (ip_vs_random_dropentry): of 32 lines of
 * the table one, by chance.
 */
#ifndef IMBANG_SWEEP_H
#define IMBANG_SWEEP_H

#include "clock.h"
#include "conn_life.h"
#include "defence.h"
#include "rng.h"
#include "settings.h"
#include "template.h"

#define SWEEP_SHARE 32

/* The shares take turns, so that no beat is long. */
#define SWEEP_BEATS 16
#define SWEEP_BEAT (NSEC_PER_SEC / SWEEP_BEATS)

/* Not younger ends what may be idle by nature. */
#define SWEEP_IDLE (60 * NSEC_PER_SEC)

struct sweep {
	__u64 now;
	__u32 beat;
	__u32 pad;
};

/* An idle connection with few packets: one in as many as it had packets
 * (todrop_entry). */
static __always_inline int sweep_idle(const struct conn *c, __u64 now)
{
	struct settings *set = get_settings();
	struct defence *d = &state.defence;
	__u32 packets = c->in_packets;
	__s64 left = c->expires - now;

	if (!packets || packets >= MANY_PACKETS)
		return 0;
	if ((__s64)conn_timeout(c->server, c->state, set) < left + (__s64)SWEEP_IDLE)
		return 0;
	if (--d->idle[packets] > 0)
		return 0;
	d->idle[packets] = packets;
	return 1;
}

/* Whether an entry that has come under the sweep is to end. */
static __always_inline int sweep_ends(const struct conn *c, __u64 now)
{
	switch (c->state) {
	case TCP_SYN_RECV:
	case TCP_SYNACK:
	case SCTP_INIT1:
	case SCTP_INIT:
		return 1;
	case TCP_ESTABLISHED:
	case SCTP_ESTABLISHED:
	case CONN_UDP:
		return sweep_idle(c, now);
	case CONN_TEMPLATE:
		return !c->controlled && !(c->flags & CONN_ASSURED);
	}
	return 0;
}

/* A template whose connection was swept away goes too, if that was its last
 * and none was real (ip_vs_conn_expire). */
__noinline int sweep_template(const struct flow *flow, const struct conn *c)
{
	struct control control;
	struct conn seen = {};
	struct flow key;

	if (!flow || !c)
		return 0;
	control = control_of(c);
	if (template_of(flow, &control, &key, &seen) &&
	    conn_kill(&key, &seen, KILL_UNHELD | KILL_UNREAL))
		entry_remove(&key, &seen);
	return 0;
}

/* Ends an entry that is as it was seen, on further conditions: 1; 0 if it is not, or was left to
 * the sweep. */
static __always_inline int sweep_end(const struct flow *flow, struct conn *seen, __u32 conditions)
{
	long rc;

	conditions |= flow->template ? KILL_UNHELD | KILL_UNREAL : KILL_SAME_STATE;
	if (!conn_kill(flow, seen, conditions))
		return 0;
	rc = conn_remove(flow, seen);
	if (seen->template)
		sweep_template(flow, seen);
	return !rc;
}

/* One line of 32. */
static long sweep_one(__u32 i, struct sweep *s)
{
	__u32 share = s->beat + i * SWEEP_BEATS;
	struct flow flow = {};
	struct conn seen = {};

	if (!entry_look(entry_at(share * SWEEP_SHARE + random_u32() % SWEEP_SHARE), &flow, &seen))
		return 0;
	if (sweep_ends(&seen, s->now))
		sweep_end(&flow, &seen, 0);
	return 0;
}

static __always_inline void sweep_all(__u32 beat)
{
	struct sweep s = { .now = now_coarse_ns(), .beat = beat };

	bpf_loop(entries_at() / (SWEEP_SHARE * SWEEP_BEATS) + 1, sweep_one, &s, 0);
}

static int sweep_timer(void *map, __u32 *key, struct clock *c)
{
	struct settings *set = get_settings();
	__u32 beat = c->tick++ % SWEEP_BEATS;
	__u64 next = NSEC_PER_SEC;

	if (clock_ends())
		return 0;
	if (set->drop_entry) {
		next = SWEEP_BEAT;
		if (defence_works(set->drop_entry))
			sweep_all(beat);
	}
	/* The next beat is a full one: being late does not add up. */
	bpf_timer_start(&c->timer, next - now_ns() % next, 0);
	return 0;
}

static __always_inline int sweep_start(void)
{
	return clock_start(CLOCK_SWEEP, sweep_timer, NSEC_PER_SEC);
}

#endif
