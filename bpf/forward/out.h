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
	__u8 known; /* the neighbour's hardware address */
	__u8 ask;   /* the neighbour: it is not known, or was not asked lately */
};

#define ROUTED (-2) /* route() found a way: no verdict yet */

/* Writing a neighbour's hardware address into a packet leaves the kernel to
 * believe in it for ever; a packet sent through its neighbour table makes it
 * ask again when the entry is old. New connections do, and a few others. */
static __always_inline int neighbour_due(const struct packet *p)
{
	return p->tcp_bits & TCP_BIT_SYN || !(bpf_get_prandom_u32() & 0xff);
}

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
	/* Against the route's MTU. Without a length the kernel looks at the skb,
	 * but lets it be longer by a VLAN tag. */
	way->fib.tot_len = packet_longest(p);
	rc = bpf_fib_lookup(p->skb, &way->fib, sizeof(way->fib), 0);
	switch (rc) {
	case BPF_FIB_LKUP_RET_SUCCESS:
		way->known = 1;
		way->ask = neighbour_due(p);
		return ROUTED;
	case BPF_FIB_LKUP_RET_NO_NEIGH:
		way->ask = 1;
		return ROUTED;
	case BPF_FIB_LKUP_RET_FWD_DISABLED:
		return drop(REASON_DROP_FORWARDING_OFF);
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		if (!p->dont_fragment)
			return drop(REASON_DROP_TOO_BIG_NO_DF);
		return icmp_error(p, ICMP_DEST_UNREACH, ICMP_FRAG_NEEDED, way->fib.mtu_result,
				  REASON_REFUSED_TOO_BIG);
	}
	return icmp_error(p, ICMP_DEST_UNREACH, ICMP_HOST_UNREACH, 0, REASON_REFUSED_NO_ROUTE);
}

/* Sends the rewritten packet on its way. */
static __always_inline int transmit(struct packet *p, struct way *way)
{
	struct __sk_buff *skb = p->skb;
	struct ethhdr *eth = (void *)(long)skb->data;

	if ((void *)(eth + 1) > (void *)(long)skb->data_end)
		return drop(REASON_DROP_REWRITE);
	if (way->known) {
		__builtin_memcpy(eth->h_dest, way->fib.dmac, ETH_ALEN);
		__builtin_memcpy(eth->h_source, way->fib.smac, ETH_ALEN);
	}
	if (way->ask) {
		struct bpf_redir_neigh next = { .nh_family = AF_INET };

		next.ipv4_nh = way->fib.ipv4_dst;
		return bpf_redirect_neigh(way->fib.ifindex, &next, sizeof(next), 0);
	}
	return bpf_redirect(way->fib.ifindex, 0);
}

#endif
