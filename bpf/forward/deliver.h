/* SPDX-License-Identifier: GPL-2.0-only */
/* Carries out what was decided about a packet. */
#ifndef IMBANG_FORWARD_DELIVER_H
#define IMBANG_FORWARD_DELIVER_H

#include "dr.h"
#include "hairpin.h"
#include "nat.h"
#include "tun.h"

/* The client's half of a connection: on to the server. A verdict, or REFUSED. */
__noinline int to_server(struct __sk_buff *skb, struct packet *p)
{
	if (!p)
		return VERDICT_DROP;
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

/* The server's half: back to the client, in the service's name. */
__noinline int to_client(struct __sk_buff *skb, struct packet *p)
{
	if (!p)
		return VERDICT_DROP;
	return nat(skb, p, NAT_SOURCE);
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
