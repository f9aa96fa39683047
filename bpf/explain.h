/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Answers what would become of a packet if it came now, by the code that
 * decides of packets; nothing comes of the question.
 */
#ifndef IMBANG_EXPLAIN_H
#define IMBANG_EXPLAIN_H

#include "forward/out.h"
#include "persist.h"
#include "trace.h"

/* What the connection table has of the flow. */
static __always_inline void explain_conn(const struct flow *flow, const struct conn *c,
					 struct answer *answer)
{
	struct control control = control_of(c);
	struct flow key;
	struct conn *t;

	answer->expires = c->expires;
	answer->state = c->state;
	answer->forward = c->forward;
	answer->port = c->port;
	contender_now(&answer->server, c->server);
	if (!c->template)
		return;
	t = template_of(flow, &control, &key);
	if (t)
		template_told(t, answer);
}

/* The connection that packets of the flow have: a verdict or a decision, or
 * UNDECIDED if there is none that they would use. */
__noinline int foresee_conn(struct packet *p)
{
	struct answer *answer = p ? story_of(p) : 0;
	struct settings *set = get_settings();
	struct server *s;
	struct conn *c;

	if (!answer || !set)
		return VERDICT_DROP;
	c = conn_find(&p->flow);
	if (!c)
		return UNDECIDED;
	explain_conn(&p->flow, c, answer);
	s = available_server(c);
	if (conn_outdated(p, c, s, set)) {
		p->news |= NEWS_OUTDATED;
		return UNDECIDED;
	}
	p->news |= NEWS_KNOWN;
	if (!s)
		return conn_orphaned(p, c);
	return decide_server(p, c->server, s, c->forward, c->port);
}

/* Why the kernel has no way to the server: a reason, or -1 if it has one. */
static __noinline int foresee_way(struct __sk_buff *skb, const struct packet *p)
{
	struct way *way;

	switch (find_way(skb, HOOK_TC, p, &p->flow.src, &p->to, 0, &way)) {
	case BPF_FIB_LKUP_RET_SUCCESS:
	case BPF_FIB_LKUP_RET_FRAG_NEEDED: /* for this packet, that stands for all */
		return -1;
	case BPF_FIB_LKUP_RET_NOT_FWDED:
		if (!is_own(skb, p, way))
			break;
		return p->forward == FORWARD_MASQ && address_loopback(&p->to)
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
	if (!set || !in_use(p, set))
		return pass(p, REASON_PASS_NO_SERVICE);
	decision = foresee_conn(p);
	return decision == UNDECIDED ? conn_new(skb, p, 0) : decision;
}

__noinline int answer_begin(const struct packet *p)
{
	struct answer *answer = p ? story_of(p) : 0;

	if (answer)
		__builtin_memset(answer, 0, sizeof(*answer));
	return 0;
}

/* Writes the answer where the packet was. */
__noinline int answer_end(struct __sk_buff *skb, const struct packet *p)
{
	struct answer *answer = p ? story_of(p) : 0;

	if (!answer)
		return -1;
	event_complete(p, &answer->event);
	answer->now = bpf_ktime_get_coarse_ns();
	return bpf_skb_store_bytes(skb, 0, answer, sizeof(*answer), 0);
}

static __always_inline int explain_packet(struct __sk_buff *skb)
{
	struct packet p = { .server = NO_SERVER, .peek = 1 };
	int decision, reason;

	answer_begin(&p);
	decision = foresee(skb, &p);
	if (decision == REFUSED)
		turn_aside(&p, p.reason);
	if (decision == TO_SERVER && p.forward == FORWARD_LOCAL) {
		turn_aside(&p, REASON_PASS_LOCAL);
	} else if (decision == TO_SERVER && p.ifindex) {
		reason = foresee_way(skb, &p);
		if (reason >= 0)
			turn_aside(&p, reason);
	}
	return answer_end(skb, &p);
}

#endif
