/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the director's own stack sends: the replies of a server that is the
 * director itself (ip_vs_out_hook at LOCAL_OUT). The stack has found the route
 * already; what is not of a connection leaves as it is, and uncounted.
 */
#ifndef IMBANG_LOCAL_H
#define IMBANG_LOCAL_H

#include "conn_packet.h"
#include "failover.h"
#include "forward/method.h"
#include "forward/nat.h"
#include "fragment.h"
#include "parse.h"
#include "related.h"
#include "settings.h"
#include "steer.h"
#include "trace.h"
#include "upgrade.h"

/* The connection of a reply, and its client's flow: a masqueraded one, or one
 * whose server answers in the service's own name. 0 if there is none. */
static __noinline int local_reply_conn(struct packet *p, struct flow *client, struct conn *seen)
{
	struct fragment *f;

	if (p->part == LATER_PART) {
		f = fragment_find(p);
		if (!f || f->direction != FROM_SERVER)
			return 0;
		*client = f->client;
		p->flow.protocol = client->protocol;
		return !!conn_look(client, seen);
	}
	if (reply_conn(&p->flow, client, seen))
		return 1;
	flow_turn(&p->flow, client);
	return conn_look(client, seen) && !replies_return(seen->forward);
}

/* TO_CLIENT, a verdict, or UNDECIDED if it is no reply. */
__noinline int local_reply(struct packet *p)
{
	struct settings *set = get_settings();
	struct flow client = {};
	struct conn seen = {};

	if (!p)
		return VERDICT_DROP;
	return local_reply_conn(p, &client, &seen) ? conn_out(p, &client, &seen, set) : UNDECIDED;
}

static __always_inline int handle_local(struct __sk_buff *skb)
{
	struct packet p = { .server = NO_SERVER, .local = 1 };
	struct settings *set = get_settings();
	int decision;

	if (guard_out(skb)) {
		count_reason(REASON_DROP_GUARDED);
		return VERDICT_DROP;
	}
	if (!(set->in_use4 | set->in_use6) || parse(skb, &p) != PARSED)
		return VERDICT_PASS;
	p.ifindex = skb->ifindex;
	if (set->steering) {
		decision = steer_out(skb, &p);
		if (decision != UNDECIDED)
			return decision;
	}
	decision = is_icmp(&p) ? related_local(skb, &p) : local_reply(&p);
	if (decision == UNDECIDED && awaits_adoption(&p))
		decision = drop(&p, REASON_DROP_UPGRADE);
	if (decision == UNDECIDED)
		return VERDICT_PASS;
	if (decision == TO_CLIENT)
		decision =
			replies_return(p.forward) ? nat_local(skb, &p, NAT_SOURCE) : VERDICT_PASS;
	if (p.news)
		report(&p);
	return decision;
}

#endif
