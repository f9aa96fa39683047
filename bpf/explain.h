/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tells what would become of a packet if it came now, by the code that
 * decides of packets; nothing comes of the question.
 */
#ifndef IMBANG_EXPLAIN_H
#define IMBANG_EXPLAIN_H

#include "clock.h"
#include "conn_packet.h"
#include "find.h"
#include "forward/method.h"
#include "forward/out.h"
#include "persist.h"
#include "schedule.h"
#include "settings.h"
#include "trace.h"

/* What the connection table has of the flow. */
static __always_inline void explain_conn(const struct flow *flow, const struct conn *c,
					 struct explanation *explanation)
{
	struct control control = control_of(c);
	struct flow key;
	struct conn t = {};

	explanation->expires = c->expires;
	explanation->state = c->state;
	explanation->forward = c->forward;
	explanation->port = c->port;
	contender_now(&explanation->server, c->server);
	if (!c->template)
		return;
	if (template_of(flow, &control, &key, &t))
		template_told(&t, explanation);
}

/* The connection that packets of the flow have: a verdict or a decision, or
 * UNDECIDED if there is none that they would use. */
__noinline int foresee_conn(struct packet *p)
{
	struct explanation *explanation = p ? story_of(p) : 0;
	struct settings *set = get_settings();
	struct conn seen = {};
	struct server *s;
	enum meets meets;

	if (!explanation)
		return VERDICT_DROP;
	meets = meet(p, &seen, &s, set);
	if (meets == MEETS_NONE)
		return UNDECIDED;
	explain_conn(&p->flow, &seen, explanation);
	/* Of a deleted server: what becomes of the connection's packets, though a SYN
	 * would open another one. */
	if (meets == MEETS_OUTDATED && !s && !set->expire_nodest_conn && !conn_is_over(&seen, set))
		meets = MEETS_ORPHAN;
	if (meets == MEETS_OUTDATED) {
		p->news |= NEWS_OUTDATED;
		return UNDECIDED;
	}
	p->news |= NEWS_KNOWN;
	if (meets == MEETS_ORPHAN)
		return conn_orphaned(p, &seen);
	if (meets == MEETS_CONN)
		return decide_server(p, seen.server, s, seen.forward, seen.port);
	p->server = seen.server;
	p->reason = REASON_REFUSED_DRAINED;
	return REFUSED;
}

/* Why the kernel has no route to the server: a reason, or -1 if it has one. */
static __noinline int foresee_route(struct __sk_buff *skb, const struct packet *p)
{
	struct route *route;

	switch (find_route(skb, HOOK_TC, p, &p->flow.src, &p->to, 0, &route)) {
	case BPF_FIB_LKUP_RET_SUCCESS:
	case BPF_FIB_LKUP_RET_FRAG_NEEDED: /* for this packet, that stands for all */
		return -1;
	case BPF_FIB_LKUP_RET_NOT_FWDED:
		if (!is_own(skb, p, route))
			break;
		return rewrites_address(p->forward) && address_loopback(&p->to)
			       ? REASON_DROP_TO_LOOPBACK
			       : REASON_PASS_LOCAL;
	case BPF_FIB_LKUP_RET_FWD_DISABLED:
		return REASON_DROP_FORWARDING_OFF;
	}
	return REASON_REFUSED_NO_ROUTE;
}

static __always_inline int foresee(struct __sk_buff *skb, struct packet *p)
{
	struct settings *set = get_settings();
	int parsed = parse(skb, p), decision;

	if (parsed != PARSED)
		return pass(p, parsed);
	if (!in_use(p, set))
		return pass(p, REASON_PASS_NO_SERVICE);
	if (stands_by(set))
		return pass(p, REASON_PASS_BACKUP);
	decision = foresee_conn(p);
	return decision == UNDECIDED ? conn_new(skb, p) : decision;
}

__noinline int explanation_begin(const struct packet *p)
{
	struct explanation *explanation = p ? story_of(p) : 0;

	if (explanation)
		__builtin_memset(explanation, 0, sizeof(*explanation));
	return 0;
}

/* Writes the explanation where the packet was. */
__noinline int explanation_end(struct __sk_buff *skb, const struct packet *p)
{
	struct explanation *explanation = p ? story_of(p) : 0;

	if (!explanation)
		return -1;
	event_complete(p, &explanation->event);
	explanation->now = now_coarse_ns();
	return bpf_skb_store_bytes(skb, 0, explanation, sizeof(*explanation), 0);
}

static __always_inline int explain_packet(struct __sk_buff *skb)
{
	struct packet p = { .server = NO_SERVER, .peek = 1 };
	int decision, reason;

	explanation_begin(&p);
	decision = foresee(skb, &p);
	if (decision == REFUSED)
		turn_aside(&p, p.reason);
	if (decision == TO_SERVER && stays_here(p.forward)) {
		turn_aside(&p, REASON_PASS_LOCAL);
	} else if (decision == TO_SERVER && p.ifindex) {
		reason = foresee_route(skb, &p);
		if (reason >= 0)
			turn_aside(&p, reason);
	}
	return explanation_end(skb, &p);
}

#endif
