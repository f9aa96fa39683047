/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Direct routing (LVS-DR): the packet goes to the server's hardware address as
 * it is. The server has the virtual address too, and answers by itself.
 */
#ifndef IMBANG_FORWARD_DR_H
#define IMBANG_FORWARD_DR_H

#include "out.h"

/* A verdict, or REFUSED. */
__noinline int direct(struct __sk_buff *skb, struct packet *p)
{
	struct route *route;
	int verdict;

	if (!p)
		return VERDICT_DROP;
	verdict = route_or_refuse(skb, p, &p->flow.src, &p->to, 0, &route);
	if (verdict == LOCAL)
		return pass(p, REASON_PASS_LOCAL);
	return verdict == ROUTED ? send_on(skb, p, route) : verdict;
}

#endif
