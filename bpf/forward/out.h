/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Routing: where the kernel's routing table sends a packet, and sending
 * it there. The look-up comes before any rewriting, so that a packet that
 * cannot go is answered as it came.
 */
#ifndef IMBANG_FORWARD_OUT_H
#define IMBANG_FORWARD_OUT_H

#include "../counters.h"
#include "../icmp.h"
#include "../route.h"

#define ROUTED (-2) /* a route was found: no verdict yet */
#define LOCAL (-9)  /* the address is the director's own */

/*
 * Finds the route from src to dst, of a family that need not be the packet's:
 * the one that was found lately, or the routing table's. `overhead` is what a
 * tunnel adds [bytes]. Segments of a TCP super-packet need only fit without that:
 * the tunnel makes them shorter by it. Returns BPF_FIB_LKUP_RET_*.
 */
static __always_inline long find_route(void *ctx, enum hook hook, const struct packet *p,
				       const union address *src, const union address *dst,
				       __u32 overhead, struct route **route)
{
	__u32 longest = packet_longest(p), slot;
	const struct routing *known;
	struct route_key j;
	int all;
	long rc;

	route_key_fill(&j, p, src, dst);
	/* Against the route's MTU. Without a length the kernel looks at the skb,
	 * but lets it be longer by a VLAN tag. */
	if (longest && !(p->gso_size && p->flow.protocol == IPPROTO_TCP))
		longest += overhead;
	known = routing_of(j.family);
	all = known->alike;
	slot = all ? route_slot_shared(&j, known) : route_slot_own(&j);
	*route = route_at(slot);
	if (!*route)
		return -ENOMEM;
	if (route_is_fresh(*route, &j)) {
		if (route_fits(*route, longest))
			return BPF_FIB_LKUP_RET_SUCCESS;
		if (all) {
			all = 0;
			slot = route_slot_own(&j);
			*route = route_at(slot);
			if (!*route)
				return -ENOMEM;
			if (route_is_fresh(*route, &j) && route_fits(*route, longest))
				return BPF_FIB_LKUP_RET_SUCCESS;
		}
	}
	rc = route_lookup(ctx, hook, *route, &j, longest, slot, all);
	return rc == BPF_FIB_LKUP_RET_NO_NEIGH ? BPF_FIB_LKUP_RET_SUCCESS : rc;
}

/* Whether there is a route, even if this packet is too big for it. */
static __always_inline int leads(void *ctx, enum hook hook, const struct packet *p,
				 const union address *src, const union address *dst,
				 struct route **route)
{
	long rc = find_route(ctx, hook, p, src, dst, 0, route);

	return rc == BPF_FIB_LKUP_RET_SUCCESS || rc == BPF_FIB_LKUP_RET_FRAG_NEEDED;
}

/* The next router, or the host itself. */
static __always_inline void route_next_hop(const struct route *route, struct bpf_redir_neigh *next)
{
	if (address_family(&route->next) == AF_INET) {
		next->nh_family = AF_INET;
		next->ipv4_nh = address_to4(&route->next);
	} else {
		next->nh_family = AF_INET6;
		__builtin_memcpy(next->ipv6_nh, &route->next, sizeof(next->ipv6_nh));
	}
}

/*
 * The route of a packet that is too big for it but may be fragmented is stored for
 * the code that cuts it. A super-packet whose
 * segments are too big would need another one, and with IPv6 outside it is not
 * for a router to do. ROUTED, or a verdict.
 */
static __always_inline int route_fragments(struct packet *p, struct route *route)
{
	struct cutting *cut;
	__u32 zero = 0;

	cut = bpf_map_lookup_elem(&cuttings, &zero);
	if (!cut || p->gso_size || route->of.family != AF_INET)
		return drop(p, REASON_DROP_TOO_BIG_NO_DF);
	cut->mtu = route->mtu;
	__builtin_memset(&cut->next, 0, sizeof(cut->next));
	route_next_hop(route, &cut->next);
	cut->device = route->ifindex;
	cut->known = route->known;
	cut->ask = route->ask;
	route->ask = 0;
	p->cut = 1;
	return ROUTED;
}

/*
 * The look-up answers in the same way for an address of the director's own and
 * for one that there is no route to. An own one has none though there is a
 * default route, or was one when the server was added.
 */
static __always_inline int is_own(struct __sk_buff *skb, const struct packet *p,
				  struct route *route)
{
	__u32 id = p->server;
	struct server *s = server_of(id);

	if (s && (address_loopback(&s->addr) || address_equal(&s->addr, &s->source)))
		return 1;
	__builtin_memset(&route->of.dst, 0, sizeof(route->of.dst));
	return route_ask_skb(skb, &route->of, 1, route->slot, 0) != BPF_FIB_LKUP_RET_NOT_FWDED;
}

/* find_route, refusing the packet if there is none: ROUTED, and the route's slot
 * in packet.route; LOCAL, or a verdict. */
static __always_inline int route_checked(struct __sk_buff *skb, struct packet *p,
					 const union address *src, const union address *dst,
					 __u32 overhead, struct route **route)
{
	long rc = find_route(skb, HOOK_TC, p, src, dst, overhead, route);

	/* What is no host's address is refused where servers are added. */
	if (rc == BPF_FIB_LKUP_RET_NOT_FWDED)
		return is_own(skb, p, *route)
			       ? LOCAL
			       : refuse(p, ICMP_ERROR_HOST, 0, REASON_REFUSED_NO_ROUTE);
	if (p->ttl <= 1)
		return refuse(p, ICMP_ERROR_TTL, 0, REASON_REFUSED_TTL_EXCEEDED);
	switch (rc) {
	case BPF_FIB_LKUP_RET_SUCCESS:
		return ROUTED;
	case BPF_FIB_LKUP_RET_FWD_DISABLED:
		return drop(p, REASON_DROP_FORWARDING_OFF);
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		if (!p->dont_fragment)
			return route_fragments(p, *route);
		return refuse(p, ICMP_ERROR_TOO_BIG, (*route)->mtu - overhead,
			      REASON_REFUSED_TOO_BIG);
	}
	return refuse(p, ICMP_ERROR_HOST, 0, REASON_REFUSED_NO_ROUTE);
}

/* Likewise: global, so that the verifier walks it once. */
__noinline int route_or_refuse_slot(struct __sk_buff *skb, struct packet *p,
				    const union address *src, const union address *dst,
				    __u32 overhead)
{
	struct route *route = 0;
	int verdict;

	if (!p || !src || !dst)
		return VERDICT_DROP;
	verdict = route_checked(skb, p, src, dst, overhead, &route);
	if (verdict == ROUTED && route)
		p->route = route->slot;
	return verdict;
}

static __always_inline int route_or_refuse(struct __sk_buff *skb, struct packet *p,
					   const union address *src, const union address *dst,
					   __u32 overhead, struct route **route)
{
	int verdict = route_or_refuse_slot(skb, p, src, dst, overhead);

	*route = route_at(verdict == ROUTED ? p->route : 0);
	return *route ? verdict : VERDICT_DROP;
}

/* One router more: TTL or hop limit less one. */
static __always_inline int take_hop(struct __sk_buff *skb, struct packet *p)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;

	if (p->flow.family == AF_INET) {
		struct iphdr *ip = data + ETH_HEADER;

		if ((void *)(ip + 1) > end)
			return -1;
		/* TTL is the first byte of its 16-bit word. */
		csum_replace2(&ip->check, bpf_htons(ip->ttl << 8), bpf_htons((ip->ttl - 1) << 8));
		ip->ttl--;
	} else {
		struct ipv6hdr *ip = data + ETH_HEADER;
		__u16 *word = (__u16 *)&ip->nexthdr, from; /* the hop limit is its other half */

		if ((void *)(ip + 1) > end)
			return -1;
		from = *word;
		ip->hop_limit--;
		/* No checksum makes up for it, so the hardware's sum follows. */
		bpf_csum_update(skb, (__u32)(__u16)~from + *word);
	}
	return 0;
}

/* By words: both are at even addresses. */
static __always_inline void mac_copy(__u8 *to, const __u8 *from)
{
	__u16 *x = (__u16 *)to;
	const __u16 *y = (const __u16 *)from;

	x[0] = y[0];
	x[1] = y[1];
	x[2] = y[2];
}

static __always_inline int mac_equal(const __u8 *a, const __u8 *b)
{
	const __u16 *x = (const __u16 *)a, *y = (const __u16 *)b;

	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2];
}

/* Sends the packet, as it now is, on its way. */
static __always_inline int transmit(struct __sk_buff *skb, struct packet *p, struct route *route)
{
	struct ethhdr *eth = (void *)(long)skb->data;

	if ((void *)(eth + 1) > (void *)(long)skb->data_end)
		return drop(p, REASON_DROP_REWRITE);
	if (route->known) {
		mac_copy(eth->h_dest, route->dmac);
		mac_copy(eth->h_source, route->smac);
	}
	if (route->ask) {
		struct bpf_redir_neigh next = {};

		route->ask = 0;
		route_next_hop(route, &next);
		return bpf_redirect_neigh(route->ifindex, &next, sizeof(next), 0);
	}
	if (route->peer && !p->local) /* only what came in by a device can go so */
		return bpf_redirect_peer(route->ifindex, 0);
	return bpf_redirect(route->ifindex, 0);
}

/* Likewise, one hop further: a verdict. */
static __always_inline int send_on(struct __sk_buff *skb, struct packet *p, struct route *route)
{
	int verdict;

	if (take_hop(skb, p))
		return drop(p, REASON_DROP_REWRITE);
	STAGE(REWRITE);
	verdict = transmit(skb, p, route);
	STAGE(TRANSMIT);
	return verdict;
}

#endif
