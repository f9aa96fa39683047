/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The way out: where the kernel's routing table sends a packet, and sending
 * it there. The look-up comes before any rewriting, so that a packet that
 * cannot go is answered as it came.
 */
#ifndef IMBANG_FORWARD_OUT_H
#define IMBANG_FORWARD_OUT_H

#include "../counters.h"
#include "../icmp.h"

struct way {
	struct bpf_fib_lookup fib;
	__u8 neighbour_unknown;
};

#define ROUTED (-2) /* route() found a way: no verdict yet */

/* Looks up the way from src to dst; ROUTED, or the packet's verdict. */
static __always_inline int route(struct packet *p, __be32 src, __be32 dst, struct way *way)
{
	long rc;

	if (p->ttl <= 1)
		return icmp_error(p, ICMP_TIME_EXCEEDED, ICMP_EXC_TTL, 0,
				  REASON_REFUSED_TTL_EXCEEDED);
	__builtin_memset(way, 0, sizeof(*way));
	way->fib.family = AF_INET;
	way->fib.l4_protocol = p->flow.protocol;
	way->fib.ifindex = p->skb->ingress_ifindex;
	way->fib.tos = p->tos;
	way->fib.ipv4_src = src;
	way->fib.ipv4_dst = dst;
	/* tot_len 0: the kernel checks the skb itself, segment by segment. */
	rc = bpf_fib_lookup(p->skb, &way->fib, sizeof(way->fib), 0);
	switch (rc) {
	case BPF_FIB_LKUP_RET_SUCCESS:
		return ROUTED;
	case BPF_FIB_LKUP_RET_NO_NEIGH:
		way->neighbour_unknown = 1;
		return ROUTED;
	case BPF_FIB_LKUP_RET_FWD_DISABLED:
		return drop(REASON_DROP_FORWARDING_OFF);
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		if (!p->dont_fragment)
			return drop(REASON_DROP_TOO_BIG_NO_DF);
		return icmp_error(p, ICMP_DEST_UNREACH, ICMP_FRAG_NEEDED, way->fib.mtu_result,
				  REASON_REFUSED_TOO_BIG);
	}
	return drop(REASON_DROP_NO_ROUTE);
}

/* Sends the rewritten packet on its way. */
static __always_inline int transmit(struct packet *p, struct way *way)
{
	struct __sk_buff *skb = p->skb;
	struct ethhdr *eth = (void *)(long)skb->data;

	if (way->neighbour_unknown)
		return bpf_redirect_neigh(way->fib.ifindex, 0, 0, 0);
	if ((void *)(eth + 1) > (void *)(long)skb->data_end)
		return drop(REASON_DROP_REWRITE);
	__builtin_memcpy(eth->h_dest, way->fib.dmac, ETH_ALEN);
	__builtin_memcpy(eth->h_source, way->fib.smac, ETH_ALEN);
	return bpf_redirect(way->fib.ifindex, 0);
}

#endif
