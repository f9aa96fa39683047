/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Masquerading both sides: of a client in the servers' own network (hairpin.h).
 */
#ifndef IMBANG_FORWARD_HAIRPIN_H
#define IMBANG_FORWARD_HAIRPIN_H

#include "../fragment.h"
#include "../hairpin.h"
#include "method.h"
#include "nat.h"

/* Whether the client is on the link that leads to the server. */
static __always_inline int neighbours(struct __sk_buff *skb, struct packet *p,
				      const struct server *s)
{
	struct route *route;
	__u32 device;

	if (!leads(skb, HOOK_TC, p, &p->flow.src, &s->addr, &route))
		return 0;
	device = route->ifindex;
	if (!leads(skb, HOOK_TC, p, &p->flow.dst, &p->flow.src, &route))
		return 0;
	if (route->ifindex != device)
		return 0;
	/* A gateway's address stands there if there is one. */
	return address_equal(&route->next, &p->flow.src);
}

/* A new connection to a server: is it to be a hairpin? */
__noinline int hairpin_wanted(struct __sk_buff *skb, struct packet *p, const struct server *s)
{
	return p && s && hairpin_capable(s->forward) && neighbours(skb, p, s);
}

/* The client's flow of a packet that goes either way; 0 if there is none. */
static __noinline int hairpin_client(const struct packet *p, struct flow *client)
{
	struct conn seen = {};
	struct fragment *f;

	if (p->part == LATER_PART) {
		f = fragment_find(p);
		if (f)
			*client = f->client;
		return !!f;
	}
	if (p->from_server)
		return replies_look(&p->flow, client, &seen) && seen.flags & CONN_HAIRPIN;
	*client = p->flow;
	return 1;
}

struct end {
	union address addr;
	__be16 port;
};

/* What the other side becomes: the client that the director stands for, or the
 * director that stands for it. */
static __noinline int hairpin_other(const struct packet *p, struct end *other)
{
	struct flow flow = {};

	if (!hairpin_client(p, &flow))
		return -1;
	if (p->from_server) {
		other->addr = flow.src;
		other->port = flow.sport;
		return 0;
	}
	if (!hairpin_replies(&flow, &flow))
		return -1;
	other->addr = flow.dst;
	other->port = flow.dport;
	return 0;
}

/* A verdict, or REFUSED. */
__noinline int hairpin(struct __sk_buff *skb, struct packet *p)
{
	enum nat_side side, other_side;
	struct end other;
	struct route *route;
	int verdict;

	if (!p)
		return VERDICT_DROP;
	if (hairpin_other(p, &other))
		return drop(p, REASON_DROP_NO_HAIRPIN);
	verdict = route_or_refuse(skb, p, p->from_server ? &p->to : &other.addr,
				  p->from_server ? &other.addr : &p->to, 0, &route);
	if (verdict == LOCAL)
		return refuse(p, ICMP_ERROR_HOST, 0, REASON_REFUSED_NO_ROUTE);
	if (verdict != ROUTED)
		return verdict;
	side = p->from_server ? NAT_SOURCE : NAT_DESTINATION;
	other_side = p->from_server ? NAT_DESTINATION : NAT_SOURCE;
	if (sctp_hides_length(p, side, p->port) || sctp_hides_length(p, other_side, other.port))
		return drop(p, REASON_DROP_SCTP_FRAGMENT);
	if (nat_side_far(skb, p, side, &p->to, p->port) ||
	    nat_side_far(skb, p, other_side, &other.addr, other.port))
		return drop(p, REASON_DROP_REWRITE);
	return send_on(skb, p, route);
}

#endif
