/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the director's own stack sends: the answers of a server that is the
 * director itself (ip_vs_out_hook at LOCAL_OUT). The stack has found the way
 * already; what is not of a connection leaves as it is, and uncounted.
 */
#ifndef IMBANG_LOCAL_H
#define IMBANG_LOCAL_H

/* The connection of an answer, and its client's flow: a masqueraded one, or one
 * whose server answers in the service's own name. */
static __noinline struct conn *answer_of(struct packet *p, struct flow *client)
{
	struct fragment *f;
	struct conn *c;

	if (p->part == LATER_PART) {
		f = fragment_find(p);
		if (!f || f->direction != FROM_SERVER)
			return 0;
		*client = f->client;
		p->flow.protocol = client->protocol;
		return conn_find(client);
	}
	c = answered(&p->flow, client);
	if (c)
		return c;
	flow_turn(&p->flow, client);
	c = conn_find(client);
	return c && !answers_here(c->forward) ? c : 0;
}

/* TO_CLIENT, a verdict, or UNDECIDED if it is no answer. */
__noinline int answer_find(struct packet *p)
{
	struct settings *set = get_settings();
	struct flow client;
	struct conn *c;

	if (!p || !set)
		return VERDICT_DROP;
	c = answer_of(p, &client);
	return c ? conn_out(p, &client, c, set) : UNDECIDED;
}

static __always_inline int handle_local(struct __sk_buff *skb)
{
	struct packet p = { .server = NO_SERVER, .local = 1 };
	struct settings *set = get_settings();
	int decision;

	if (!set || !(set->in_use4 | set->in_use6) || parse(skb, &p) != PARSED)
		return VERDICT_PASS;
	p.ifindex = skb->ifindex;
	decision = is_icmp(&p) ? related_local(skb, &p) : answer_find(&p);
	if (decision == UNDECIDED)
		return VERDICT_PASS;
	if (decision == TO_CLIENT)
		decision =
			p.forward == FORWARD_MASQ ? nat_local(skb, &p, NAT_SOURCE) : VERDICT_PASS;
	if (p.news)
		report(&p);
	return decision;
}

#endif
