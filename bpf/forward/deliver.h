/* SPDX-License-Identifier: GPL-2.0-only */
/* Carries out what was decided about a packet: the only place that goes by the
 * name of the forwarding method. */
#ifndef IMBANG_FORWARD_DELIVER_H
#define IMBANG_FORWARD_DELIVER_H

#include "dr.h"
#include "hairpin.h"
#include "nat.h"
#include "tun.h"

/* The client's half of a connection: on to the server. A verdict, or REFUSED.
 * Each method is a global function: a frame of its own, which the verifier walks
 * once for a program. */
static __always_inline int to_server(struct __sk_buff *skb, struct packet *p)
{
	switch (p->forward) {
	case FORWARD_MASQ:
		return nat_in(skb, p);
	case FORWARD_ROUTE:
		return direct(skb, p);
	case FORWARD_TUNNEL:
		return tunnel(skb, p);
	case FORWARD_LOCAL:
		return pass(p, REASON_PASS_LOCAL);
	}
	return drop(p, REASON_DROP_FORWARD_METHOD);
}

/* Likewise, of a packet that may go by the fast path, and whose route was found. */
static __always_inline int to_server_fast(struct __sk_buff *skb, struct packet *p,
					  const struct server *s, struct route *route)
{
	if (p->forward == FORWARD_MASQ)
		return nat_send(skb, p, NAT_DESTINATION, route);
	return encapsulates(p->forward) ? tunnel_send(skb, p, s, route) : send_on(skb, p, route);
}

/* The server's half: back to the client, in the service's name. */
static __always_inline int to_client(struct __sk_buff *skb, struct packet *p)
{
	return nat_out(skb, p);
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
