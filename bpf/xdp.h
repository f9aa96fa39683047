/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * In front of the classifiers, before the kernel makes an skb of a packet: the
 * fast path, and new connections. What is not sure to go from here goes on to
 * the classifiers of the same device, as it came and not counted yet.
 */
#ifndef IMBANG_XDP_H
#define IMBANG_XDP_H

#include "fast.h"

/*
 * Whether the hardware is still to fill in the checksum: it then is the sum of
 * the pseudo header, without the complement. So are those of neighbours on
 * this machine, and of what GRO put together. There is no asking here; one in
 * 65536 others looks the same, and comes to no harm by being left.
 */
static __always_inline int xdp_pending(const struct packet *p, __u16 check)
{
	const __u32 *src = (__u32 *)&p->flow.src, *dst = (__u32 *)&p->flow.dst;
	__u32 payload = p->length - (p->transport - ETH_HEADER);
	__u64 sum = (__u64)src[3] + dst[3] + bpf_htons(p->flow.protocol) + bpf_htons(payload);

	if (p->flow.family == AF_INET6)
		sum += (__u64)src[0] + src[1] + src[2] + dst[0] + dst[1] + dst[2];
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	return check == (__u16)~csum_fold(sum);
}

static __always_inline int xdp_transport_pending(const struct packet *p, void *data, void *end)
{
	__u32 at = p->flow.family == AF_INET ? ETH_HEADER + sizeof(struct iphdr)
					     : ETH_HEADER + sizeof(struct ipv6hdr);
	struct tcphdr *tcp = data + at;
	struct udphdr *udp = data + at;

	if (p->flow.protocol == IPPROTO_TCP)
		return (void *)(tcp + 1) > end || xdp_pending(p, tcp->check);
	return (void *)(udp + 1) > end || xdp_pending(p, udp->check);
}

static __always_inline int mac_equal(const __u8 *a, const __u8 *b)
{
	const __u16 *x = (const __u16 *)a, *y = (const __u16 *)b;

	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2];
}

/* plain() of a packet that came in by one of the devices, for its address. */
static __always_inline int xdp_plain(struct xdp_md *ctx, struct packet *p,
				     const struct settings *set)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	const struct xdp_device *device = xdp_device(set, ctx->ingress_ifindex);
	struct ethhdr *eth = data;

	if (!device || (void *)(eth + 1) > end || !mac_equal(eth->h_dest, device->mac))
		return 0;
	/* Of a packet in several buffers this is the first: left. */
	p->frame = end - data;
	p->ifindex = ctx->ingress_ifindex;
	p->segments = 1;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		if (!plain4(p, data, end))
			return 0;
	} else if (eth->h_proto != bpf_htons(ETH_P_IPV6) || !plain6(p, data, end)) {
		return 0;
	}
	return !xdp_transport_pending(p, data, end);
}

/* Whether new connections may be opened here: not if an skb's mark, which is
 * not there yet, or the link that the client is on decides. */
static __always_inline int xdp_opens(const struct packet *p, const struct settings *set)
{
	return !set->fwmarks && !set->hairpin && may_open(p, set);
}

/* An XDP action. */
static __always_inline int xdp_known(struct xdp_md *ctx, struct packet *p, int expect_answers)
{
	struct settings *set = get_settings();

	if (!set || !xdp_plain(ctx, p, set) || !in_use(p, set))
		return XDP_PASS;
	return fast(ctx, p, expect_answers, set, HOOK_XDP);
}

/* A packet that may open a connection; a function, for the stack's sake. */
static __noinline int xdp_may_open(struct xdp_md *ctx, struct packet *p)
{
	struct settings *set = get_settings();

	return set && xdp_plain(ctx, p, set) && xdp_opens(p, set);
}

/* The packet that opened one: an XDP action, or UNDECIDED. Likewise. */
static __noinline int xdp_first(struct xdp_md *ctx, struct packet *p)
{
	struct settings *set = get_settings();
	struct conn *c = conn_find(&p->flow);

	return set && c ? fast_in(ctx, p, c, set, HOOK_XDP) : UNDECIDED;
}

/*
 * Opens the connection, and then treats the packet as one of a connection that
 * there is. If it cannot go from here, the classifier finds it the same way: it
 * counts the packet, and the connection was counted here.
 */
static __always_inline int xdp_new(struct xdp_md *ctx, struct packet *p)
{
	int action;

	if (!xdp_may_open(ctx, p))
		return XDP_PASS;
	p->ahead = 1;
	if (conn_new_ahead(p) == VERDICT_DROP) {
		report(p);
		return XDP_DROP;
	}
	if (!(p->news & NEWS_OPENED))
		return XDP_PASS;
	action = xdp_first(ctx, p);
	if (action != UNDECIDED)
		return action;
	report(p);
	return XDP_PASS;
}

#endif
