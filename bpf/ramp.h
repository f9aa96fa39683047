/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Slow start. A server that returns would get a flood: lc, wlc, sed and nq give it every
 * connection until its counts equal the others'. For its slow start T its part of the
 * service's new connections is bounded by a line: at a time t after it returned, by t/T of
 * its fair share, whatever the scheduler. The line goes on beyond T, so that the flood does
 * not merely come later, and ends where it is all of the connections.
 *
 * When the scheduler chooses such a server and it has had its part, the scheduler is asked
 * again without all that have a ramp. If no other can take the connection, the first
 * choice does: no connection is refused for a ramp.
 *
 * Each CPU counts for itself, by the connections of the service that it opened: parts of
 * all CPUs add up to the part of the whole.
 */
#ifndef IMBANG_RAMP_H
#define IMBANG_RAMP_H

#include "by_id.h"
#include "maps.h"
#include "sched.h"
#include "settings.h"

/* What a scheduler did not choose it for, a server may make up for by so many connections:
 * one that is chosen at random would get half of its part with one. */
#define MOST_CREDIT (8 * WHOLE_PART)

/* Whether a server has had its part of a service's connections on this CPU. If not, it
 * takes one now. A function, for the stack's sake. */
static __noinline int ramp_holds(__u32 service, __u32 id)
{
	struct counters *c = service_counters_of(service);
	struct ramp_turn *turn = ramp_turn_of(id);
	struct server *s = server_of(id);
	__u64 part = ramp_part(id), opened, credit;

	if (part >= WHOLE_PART || !c || !turn || !s)
		return 0;
	if (turn->since != s->ramp_since) {
		turn->since = s->ramp_since;
		turn->seen = c->conns;
		turn->credit = 0;
		turn->part = 0;
	}
	/* Between two looks the mean of a straight line is that of its ends. The
	 * connection at hand is not counted yet. */
	opened = c->conns + 1;
	credit = turn->credit + (opened - turn->seen) * (turn->part + part) / 2;
	if (credit > MOST_CREDIT)
		credit = MOST_CREDIT;
	turn->seen = opened;
	turn->part = part;
	turn->credit = credit;
	if (credit < WHOLE_PART)
		return 1;
	turn->credit = credit - WHOLE_PART;
	return 0;
}

static __always_inline enum fair fairness(enum scheduler scheduler)
{
	switch (scheduler) {
	case SCHED_RR: /* these look at weights only for being above 0 */
	case SCHED_LC:
	case SCHED_DH:
		return FAIR_NUMBER;
	case SCHED_FO: /* these give all to one server, as long as it can take it */
	case SCHED_OVF:
		return FAIR_ALL;
	default:
		return FAIR_WEIGHT;
	}
}

struct ramp_walk {
	__u32 first;
	__u32 number; /* servers that have a weight */
	__u64 weight; /* of them all */
};

static long ramp_add(__u32 i, struct ramp_walk *w)
{
	__u32 id = server_id_at(w->first, i);
	struct server *s = server_of(id);

	if (s && s->weight > 0) {
		w->weight += s->weight;
		w->number++;
	}
	return 0;
}

/* What the shares of a service's servers are of, after a change. */
static __noinline int ramps_changed(const struct service *svc)
{
	__u32 id = svc->id, first = svc->first;
	struct fair_sum *sum = fair_sum_of(id);
	struct ramp_walk w = {};

	if (!get_settings()->slow_starts || !sum)
		return 0;
	store_unknown(&w.first, first);
	bpf_loop(svc->count, ramp_add, &w, 0);
	sum->fair = fairness(svc->scheduler);
	sum->sum = sum->fair == FAIR_WEIGHT ? w.weight : w.number;
	return 0;
}

#endif
