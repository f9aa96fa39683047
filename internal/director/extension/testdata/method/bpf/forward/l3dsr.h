/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Made up, for a test: direct server return over routers. The packet goes to
 * the server's address, and its DSCP says which virtual address it was for; the
 * server answers the client itself.
 */
#ifndef IMBANG_FORWARD_L3DSR_H
#define IMBANG_FORWARD_L3DSR_H

#include "nat.h"

#define L3DSR_TOS 0x28 /* DSCP 10 */

static __always_inline int l3dsr_mark(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + ETH_HEADER;

	if ((void *)(ip + 1) > end)
		return -1;
	csum_replace2(&ip->check, bpf_htons(ip->tos), bpf_htons(L3DSR_TOS));
	ip->tos = L3DSR_TOS;
	return 0;
}

/* A verdict, or REFUSED. */
__noinline int l3dsr(struct __sk_buff *skb, struct packet *p)
{
	struct route *route;
	int verdict;

	if (!p)
		return VERDICT_DROP;
	if (p->flow.family != AF_INET)
		return drop(p, REASON_DROP_FORWARD_METHOD);
	verdict = route_or_refuse(skb, p, &p->flow.src, &p->to, 0, &route);
	if (verdict == LOCAL)
		return pass(p, REASON_PASS_LOCAL);
	if (verdict != ROUTED)
		return verdict;
	if (l3dsr_mark(skb))
		return drop(p, REASON_DROP_REWRITE);
	return nat_send(skb, p, NAT_DESTINATION, route);
}

#endif
