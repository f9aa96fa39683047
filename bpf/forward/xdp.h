/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The way out of a packet that the kernel has not made an skb of: rewritten in
 * place, its checksums by difference, and handed to a driver. Only plain
 * packets come here.
 */
#ifndef IMBANG_FORWARD_XDP_H
#define IMBANG_FORWARD_XDP_H

#include "../clock.h"
#include "../csum.h"
#include "method.h"
#include "nat.h"
#include "tun.h"

/* The device's entry in the settings, if packets may leave by it; 0 if they may
 * not, because it has no such program or its driver takes none. */
static __always_inline const struct xdp_device *xdp_device(const struct settings *set,
							   __u32 ifindex)
{
	if (!ifindex)
		return 0;
	if (set->xdp[0].ifindex == ifindex)
		return &set->xdp[0];
	return set->xdp[1].ifindex == ifindex ? &set->xdp[1] : 0;
}

#define ASK_AGAIN NSEC_PER_SEC

/* Whether the kernel was reminded lately that a neighbour is in use. */
static __always_inline int xdp_asked(const struct route *route)
{
	__u64 now = time_coarse(), neighbour = (__u64)route->ifindex << 48;
	struct asked_neighbour *a;
	__u32 slot;

	__builtin_memcpy(&neighbour, route->dmac, ETH_ALEN);
	slot = hash_32(neighbour ^ neighbour >> 32, ASKED_BITS);
	a = bpf_map_lookup_elem(&asked, &slot);
	if (!a)
		return 0;
	if (a->neighbour == neighbour && now < a->until)
		return 1;
	a->neighbour = neighbour;
	a->until = now + ASK_AGAIN;
	return 0;
}

/*
 * Whether a packet may leave by a route from here. Writing a neighbour's hardware
 * address does not remind the kernel of it (NEIGHBOUR_REFRESH), and there is no
 * bpf_redirect_neigh here. So one packet a second is left to the classifier,
 * which is made to ask.
 */
static __always_inline int xdp_goes(struct route *route, const struct settings *set)
{
	if (!route->known || !xdp_device(set, route->ifindex))
		return 0;
	if (!route->ask)
		return 1;
	if (xdp_asked(route)) {
		route->ask = 0;
		return 1;
	}
	route->until = 0;
	route->asked = 0;
	return 0;
}

/* The IP header: another address, if the method rewrites it, and one hop less. */
static __always_inline int xdp_ip(struct xdp_md *ctx, const struct packet *p, enum nat_side side,
				  int rewrites, __u64 moved)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (p->flow.family == AF_INET) {
		struct iphdr *ip = data + ETH_HEADER;

		if ((void *)(ip + 1) > end)
			return -1;
		moved += (__u16)~bpf_htons(ip->ttl << 8) + bpf_htons((ip->ttl - 1) << 8);
		ip->check = csum_moved(ip->check, moved);
		ip->ttl--;
		if (rewrites)
			*(side == NAT_SOURCE ? &ip->saddr : &ip->daddr) = address_to4(&p->to);
	} else {
		struct ipv6hdr *ip = data + ETH_HEADER;

		if ((void *)(ip + 1) > end)
			return -1;
		ip->hop_limit--;
		if (rewrites)
			__builtin_memcpy(side == NAT_SOURCE ? &ip->saddr : &ip->daddr, &p->to,
					 sizeof(p->to));
	}
	return 0;
}

/* Hands the packet to the driver that it leaves by. */
static __always_inline int xdp_transmit(struct xdp_md *ctx, const struct packet *p,
					const struct route *route, const struct settings *set)
{
	const struct xdp_device *device;
	struct ethhdr *eth = (void *)(long)ctx->data;

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return -1;
	mac_copy(eth->h_dest, route->dmac);
	mac_copy(eth->h_source, route->smac);
	if (route->ifindex == p->ifindex) {
		device = xdp_device(set, route->ifindex);
		if (device && device->turns)
			return XDP_TX;
	}
	return bpf_redirect(route->ifindex, 0);
}

/* Puts the packet into its server's tunnel; an XDP action, or -1. A function, for the
 * stack's sake. */
static __noinline int xdp_tunnel(struct xdp_md *ctx, const struct packet *p,
				 const struct route *route, const struct settings *set)
{
	__u32 id = p->server;
	struct server *s = server_of(id);
	struct tunnel t = {};

	if (!s)
		return -1;
	tunnel_plan(p, s, &t);
	if (bpf_xdp_adjust_head(ctx, -(int)(t.ip + t.shim)) ||
	    tunnel_write((void *)(long)ctx->data, (void *)(long)ctx->data_end, p, s, &t))
		return -1;
	return xdp_transmit(ctx, p, route, set);
}

/* Sends a plain packet on as was decided; an XDP action. */
static __always_inline int xdp_send(struct xdp_md *ctx, struct packet *p, enum nat_side side,
				    const struct route *route, const struct settings *set)
{
	const union address *from = side == NAT_SOURCE ? &p->flow.src : &p->flow.dst;
	int rewrites = side == NAT_SOURCE || rewrites_address(p->forward);
	__u64 moved = 0;
	int action = -1;

	if (rewrites) {
		moved = address_moved(p, from, &p->to);
		if (transport_rewrite(p, (void *)(long)ctx->data + plain_transport_at(p),
				      (void *)(long)ctx->data_end, side, p->port, moved))
			goto out;
	}
	if (!xdp_ip(ctx, p, side, rewrites, moved)) {
		STAGE(REWRITE);
		action = !rewrites && encapsulates(p->forward) ? xdp_tunnel(ctx, p, route, set)
							       : xdp_transmit(ctx, p, route, set);
		STAGE(TRANSMIT);
	}
out:
	if (action >= 0)
		return action;
	drop(p, REASON_DROP_REWRITE);
	return XDP_DROP;
}

#endif
