/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The whole path of a packet: parse, find, schedule, follow, forward, report.
 * Packets that the fast path leaves come here.
 */
#ifndef IMBANG_WHOLE_H
#define IMBANG_WHOLE_H

#include "counters.h"
#include "failover.h"
#include "find.h"
#include "forward/cut.h"
#include "forward/deliver.h"
#include "forward/hairpin.h"
#include "icmp.h"
#include "outbound.h"
#include "parse.h"
#include "related.h"
#include "reset.h"
#include "schedule.h"
#include "service.h"
#include "settings.h"
#include "sync.h"
#include "trace.h"
#include "tunnel_error.h"

/* What the fast path found (enum found). It stays in the skb: kept here it would take room
 * on the stack, of which lb_whole has none left. */
static __always_inline __u32 found(const struct __sk_buff *skb)
{
	return skb->cb[0];
}

/* Returns a verdict or a decision. */
static __always_inline int decide(struct __sk_buff *skb, struct packet *p)
{
	struct settings *set = get_settings();
	int decision = UNDECIDED;
	int parsed = parse(skb, p);

	STAGE(PARSE);
	if (guard(skb))
		return drop(p, REASON_DROP_GUARDED);
	if (parsed != PARSED)
		return pass(p, parsed);
	/* An error about a tunnel may be of another family than its service. */
	if (!(in_use(p, set) || (is_icmp(p) && (set->in_use4 || set->in_use6))))
		return pass(p, REASON_PASS_NO_SERVICE);
	if (stands_by(set))
		return stand_by(skb, p);
	if (is_icmp(p)) {
		decision = related(skb, p);
		return decision == UNDECIDED ? tunnel_error(skb, p) : decision;
	}
	if (p->part == LATER_PART)
		return find_later(skb, p);
	if (!(found(skb) & NOTHING_FOUND))
		decision = find(p, found(skb) & EXPECT_REPLIES);
	if (decision == UNDECIDED && set->one_device && !(found(skb) & NOTHING_FOUND))
		decision = find_reply(skb, p);
	STAGE(FIND);
	if (decision == UNDECIDED)
		decision = conn_opened(skb, p);
	STAGE(OPEN);
	if (decision == UNDECIDED)
		decision = find(p, found(skb) & EXPECT_REPLIES);
	if (decision == VERDICT_PASS && !(found(skb) & EXPECT_REPLIES) && !p->outdated) {
		decision = find_reply(skb, p);
		if (decision == UNDECIDED)
			decision = VERDICT_PASS;
	}
	if (decision == TO_SERVER)
		sync_packet(p);
	return decision == VERDICT_PASS ? outbound_packet(skb, p) : decision;
}

static __always_inline int carry_out(struct __sk_buff *skb, struct packet *p, int decision)
{
	if (p->hairpin && (decision == TO_SERVER || decision == TO_CLIENT))
		decision = hairpin(skb, p);
	else if (decision == TO_SERVER)
		decision = to_server(skb, p);
	else if (decision == TO_CLIENT)
		decision = to_client(skb, p);
	else if (decision == UNDECIDED) /* two CPUs interfered with each other */
		decision = drop(p, REASON_DROP_TABLE_FULL);
	if (p->cut && decision == VERDICT_REDIRECT)
		return cut(skb, p);
	if (decision == TOLD_ON)
		return tell_on(skb, p);
	if (decision == RESET)
		return reset(skb, p);
	if (decision == HANDED)
		return hand_on(skb, p);
	return decision == REFUSED ? icmp_error(skb, p) : decision;
}

static __always_inline int handle(struct __sk_buff *skb)
{
	struct packet p = { .server = NO_SERVER };
	int verdict = carry_out(skb, &p, decide(skb, &p));

	if (p.news & NEWS_OPENED)
		split_if_due();
	if (p.news)
		report(&p);
	STAGE(REPORT);
	return verdict;
}

#endif
