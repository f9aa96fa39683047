/* SPDX-License-Identifier: GPL-2.0-only */
/* Carries out what was decided about a packet. */
#ifndef IMBANG_FORWARD_DELIVER_H
#define IMBANG_FORWARD_DELIVER_H

#include "dr.h"
#include "nat.h"

/* Decisions that are no verdicts yet. */
enum decision {
	TO_SERVER = -3, /* packet.server, forward, to, port */
	TO_CLIENT = -4, /* packet.to, port: the service's */
	TO_NOBODY = -5, /* no server takes it */
	UNDECIDED = -6,
};

/* The client's half of a connection: on to the server. */
static __always_inline int to_server(struct __sk_buff *skb, struct packet *p)
{
	switch (p->forward) {
	case FORWARD_MASQ:
		return nat(skb, p, NAT_DESTINATION);
	case FORWARD_ROUTE:
		return direct(skb, p);
	case FORWARD_LOCAL:
		return pass(p, REASON_PASS_LOCAL);
	}
	return drop(p, REASON_DROP_FORWARD_METHOD);
}

static __noinline int deliver(struct __sk_buff *skb, struct packet *p, int decision)
{
	if (decision == TO_SERVER)
		return to_server(skb, p);
	if (decision == TO_CLIENT) /* in the service's name */
		return nat(skb, p, NAT_SOURCE);
	if (decision == TO_NOBODY)
		return icmp_error(skb, p, ICMP_ERROR_PORT, 0, REASON_REFUSED_NO_SERVER);
	return decision == UNDECIDED ? drop(p, REASON_DROP_TABLE_FULL) : decision;
}

/* Decides for the server of a connection. */
static __always_inline int decide_server(struct packet *p, __u32 id, const struct server *s,
					 __u8 forward, __be16 port)
{
	p->server = id;
	p->forward = forward;
	p->to = s->addr;
	p->port = port;
	return TO_SERVER;
}

#endif
