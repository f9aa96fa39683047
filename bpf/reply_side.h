/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * From which side a server's packets come. A client can forge a packet with a server's
 * address: a reset of that kind would close a connection. So packets of servers count only
 *
 * 1. from the servers' device, where clients have another one, whatever the routes are; or
 * 2. from the device that the route back to the server leads to, if the frame's sender is
 *    the next hop there.
 *
 * The setting reply_filter says what is compared of 2. Where the kernel does not know the next
 * hop's hardware address, it has sent the server nothing lately, and any sender will do.
 *
 * The fast path looks no route up: the sender that was found right is kept in struct server,
 * for SENDER_TICKS. Another one there, or none, leaves the packet to the whole path, which looks.
 * A kept sender comes into force again after 2^16 ticks, 73 min, for as long, if no packet of
 * the server has come by another one in the meantime.
 */
#ifndef IMBANG_REPLY_SIDE_H
#define IMBANG_REPLY_SIDE_H

#include "clock.h"
#include "forward/out.h"
#include "pair.h"
#include "settings.h"

#define SENDER_TICKS 3 /* so many of 67 ms */

/* A hardware address, above 16 bits of the time. */
static __always_inline __u64 sender_word(const __u8 *mac, __u64 now)
{
	const __u16 *m = (const __u16 *)mac; /* it is at an even address */

	return (__u64)m[0] << 16 | (__u64)m[1] << 32 | (__u64)m[2] << 48 |
	       (__u16)(now >> TICK_SHIFT);
}

/* Whether a sender is the one that was kept. */
static __always_inline int sender_is(__u64 kept, const __u8 *mac, __u64 now)
{
	__u64 word = sender_word(mac, now);

	return word >> 16 == kept >> 16 && (__u16)(word - kept) < SENDER_TICKS;
}

/* Whether the route to a server leads to where a packet came from; then the sender is kept
 * for the server (NO_SERVER: for none). */
static __always_inline int route_leads_back(void *ctx, enum hook hook, const struct packet *p,
					    const union address *addr, __u32 id, const __u8 *mac,
					    const struct settings *set)
{
	struct route *route;
	struct server *s;

	if (!leads(ctx, hook, p, &p->flow.dst, addr, &route) || route->ifindex != p->ifindex)
		return 0;
	if (set->reply_filter >= FILTER_NEXT_HOP) {
		if (!route->known)
			return 1;
		if (!mac_equal(route->dmac, mac))
			return 0;
	}
	s = server_of(id);
	if (s)
		s->sender = sender_word(mac, time_coarse());
	return 1;
}

/* Whether a packet of a server's, or about one that went to it, came from the server's side. */
__noinline int from_side_of(struct __sk_buff *skb, const struct packet *p,
			    const union address *addr, __u32 id)
{
	__u8 mac[ETH_ALEN] __attribute__((aligned(2)));
	struct settings *set = get_settings();

	if (!p || !addr)
		return 0;
	if (!set->reply_filter || skb->cb[0] & EXPECT_REPLIES)
		return 1;
	return !source_mac(skb, mac) && route_leads_back(skb, HOOK_TC, p, addr, id, mac, set);
}

/* Likewise a reply, before there is an skb. */
__noinline int xdp_from_side_of(struct xdp_md *ctx, const struct packet *p, __u32 id)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	__u8 mac[ETH_ALEN] __attribute__((aligned(2)));
	struct settings *set = get_settings();

	if (!p || (void *)(eth + 1) > (void *)(long)ctx->data_end)
		return 0;
	mac_copy(mac, eth->h_source);
	return !set->reply_filter || route_leads_back(ctx, HOOK_XDP, p, &p->flow.src, id, mac, set);
}

/* Whether a frame of a server's came from the sender that was kept. A function: the fast path
 * has no stack left. */
static __noinline int frame_of_kept_sender(const void *data, const void *end, __u32 id)
{
	struct server *s = server_of(id);
	const struct ethhdr *eth = data;

	return s && (const void *)(eth + 1) <= end &&
	       sender_is(s->sender, eth->h_source, time_coarse());
}

static __always_inline int from_kept_sender(void *ctx, enum hook hook, __u32 id)
{
	struct __sk_buff *skb = ctx;
	struct xdp_md *xdp = ctx;

	if (hook == HOOK_TC)
		return frame_of_kept_sender((void *)(long)skb->data, (void *)(long)skb->data_end,
					    id);
	return frame_of_kept_sender((void *)(long)xdp->data, (void *)(long)xdp->data_end, id);
}

#endif
