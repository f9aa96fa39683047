/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * In front of the classifiers, before the kernel makes an skb of a packet: the
 * fast path, and for whole TCP and UDP packets what else becomes of a
 * connection. What is not sure to go from here goes on to the classifiers of the
 * same device, as it came and not counted yet.
 */
#ifndef IMBANG_XDP_H
#define IMBANG_XDP_H

#include "fast.h"
#include "find.h"
#include "forward/method.h"
#include "forward/xdp.h"
#include "schedule.h"
#include "settings.h"
#include "steer.h"
#include "sum.h"

/*
 * Whether the hardware is still to fill in the checksum: it then is the sum of
 * the pseudo header, without the complement. So are those of neighbours on
 * this machine, and of what GRO put together. There is no asking here; one in
 * 65536 others looks the same, and comes to no harm by being left.
 */
static __always_inline int xdp_pending(const struct packet *p, __u16 check)
{
	return check == sum_pseudo(p, p->length - (p->transport - ETH_HEADER));
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

/* The family of a packet for the device that it came in by; 0: another. */
static __always_inline __u8 xdp_family(struct xdp_md *ctx, const struct settings *set)
{
	const struct xdp_device *device = xdp_device(set, ctx->ingress_ifindex);
	struct ethhdr *eth = (void *)(long)ctx->data;

	if (!device || set->standby || (void *)(eth + 1) > (void *)(long)ctx->data_end ||
	    !mac_equal(eth->h_dest, device->mac))
		return 0;
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		return set->in_use4 ? AF_INET : 0;
	return eth->h_proto == bpf_htons(ETH_P_IPV6) && set->in_use6 ? AF_INET6 : 0;
}

/* plain(), of what can be rewritten here. */
static __always_inline int xdp_plain(struct xdp_md *ctx, struct packet *p, __u8 family)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	/* Of a packet in several buffers this is the first: too short for it. */
	p->frame = end - data;
	p->ifindex = ctx->ingress_ifindex;
	p->segments = 1;
	return plain(p, data, end, family) && p->ttl > 1 && !xdp_transport_pending(p, data, end);
}

/* Sends a packet of a settled connection: an XDP action. The side is known when
 * this is compiled. */
static __always_inline int xdp_settled(struct xdp_md *ctx, struct packet *p, struct settled *s,
				       const union conn_key *key, const struct settings *set,
				       enum nat_side side, __u8 family)
{
	int action;

	s->side = side;
	if (!fast_route(ctx, HOOK_XDP, p, s, key, family) || !xdp_goes(s->route, set))
		return XDP_PASS;
	fast_count(p, s);
	STAGE(FOLLOW);
	action = xdp_send(ctx, p, side, s->route, set);
	if (p->news & NEWS_ASIDE)
		count_reason(p->reason);
	return action;
}

/* An XDP action, or UNDECIDED. */
static __always_inline int xdp_steady(struct xdp_md *ctx, int expect_replies,
				      const struct settings *set, union conn_key *key, __u8 family)
{
	struct packet p = { .server = NO_SERVER };
	struct settled s = {};

	if (!xdp_plain(ctx, &p, family))
		return XDP_PASS;
	STAGE(PARSE);
	if (set->drain_timeout || p.tcp_bits & (TCP_BIT_SYN | TCP_BIT_FIN | TCP_BIT_RST) ||
	    fast_find(ctx, HOOK_XDP, &p, &s, key, expect_replies, set, family) ||
	    !fast_takes(&p, &s) || !fast_steady(&p, &s, set) || p.news & NEWS_STATE ||
	    fast_tells(&p, &s, set))
		return UNDECIDED;
	return s.side == NAT_SOURCE ? xdp_settled(ctx, &p, &s, key, set, NAT_SOURCE, family)
				    : xdp_settled(ctx, &p, &s, key, set, NAT_DESTINATION, family);
}

static __noinline int xdp_steady4(struct xdp_md *ctx, int expect_replies,
				  const struct settings *set)
{
	union conn_key4 key;

	return xdp_steady(ctx, expect_replies, set, (void *)&key, AF_INET);
}

static __noinline int xdp_steady6(struct xdp_md *ctx, int expect_replies,
				  const struct settings *set)
{
	union conn_key key;

	return xdp_steady(ctx, expect_replies, set, &key, AF_INET6);
}

/* fast(), of XDP: an action, or UNDECIDED. */
static __always_inline int xdp_fast(struct xdp_md *ctx, int expect_replies)
{
	struct settings *set = get_settings();

	switch (xdp_family(ctx, set)) {
	case AF_INET:
		return xdp_steady4(ctx, expect_replies, set);
	case AF_INET6:
		return xdp_steady6(ctx, expect_replies, set);
	}
	return XDP_PASS;
}

/* Whether the packet can leave from here: it has a route that XDP can use. */
static __always_inline int xdp_route(struct xdp_md *ctx, const struct packet *p,
				     const union address *src, const union address *dst,
				     struct route **route, const struct settings *set)
{
	int found = find_route(ctx, HOOK_XDP, p, src, dst, 0, route) == BPF_FIB_LKUP_RET_SUCCESS &&
		    xdp_goes(*route, set);

	STAGE(ROUTE);
	return found;
}

/* Likewise, to a server. */
static __always_inline int xdp_route_in(struct xdp_md *ctx, const struct packet *p,
					const struct server *s, __u8 forward, struct route **route,
					const struct settings *set)
{
	if (!fast_capable(forward))
		return 0;
	if (!encapsulates(forward))
		return xdp_route(ctx, p, &p->flow.src, &s->addr, route, set);
	*route = tunnel_route(ctx, HOOK_XDP, p, s);
	STAGE(ROUTE);
	return *route && xdp_goes(*route, set);
}

static __always_inline int xdp_finish(struct xdp_md *ctx, struct packet *p, enum nat_side side,
				      const struct route *route, const struct settings *set)
{
	int action = xdp_send(ctx, p, side, route, set);

	if (p->news)
		report(p);
	STAGE(REPORT);
	return action;
}

/* A client's packet of a connection: an XDP action, or UNDECIDED. */
static __noinline int xdp_in(struct xdp_md *ctx, struct packet *p)
{
	struct settings *set = get_settings();
	struct conn seen = {};
	struct route *route;
	struct server *s;
	enum meets meets = conn_absent(&p->flow) ? MEETS_NONE : meet(p, &seen, &s, set);

	if (meets == MEETS_NONE) {
		note_lapsed(p, &seen);
		return UNDECIDED;
	}
	if (meets != MEETS_CONN || seen.flags & CONN_HAIRPIN ||
	    !xdp_route_in(ctx, p, s, seen.forward, &route, set))
		return XDP_PASS;
	conn_in(p, &p->flow, &seen, s, set);
	STAGE(FOLLOW);
	return xdp_finish(ctx, p, NAT_DESTINATION, route, set);
}

/* A server's, an XDP action. */
static __always_inline int xdp_out(struct xdp_md *ctx, struct packet *p, const struct flow *client,
				   struct conn *seen)
{
	struct settings *set = get_settings();
	struct route *route;

	if (set->draining || seen->flags & CONN_HAIRPIN || !replies_return(seen->forward) ||
	    !xdp_route(ctx, p, &client->dst, &p->flow.dst, &route, set))
		return XDP_PASS;
	conn_out(p, client, seen, set);
	STAGE(FOLLOW);
	return xdp_finish(ctx, p, NAT_SOURCE, route, set);
}

/* Whether new connections may be opened here: not if an skb's mark, which is
 * not there yet, or the link that the client is on decides. */
static __always_inline int xdp_opens(const struct packet *p)
{
	struct settings *set = get_settings();

	return !set->fwmarks && !set->hairpin && !set->expire_nodest_conn && may_open(p, set);
}

/* The packet that opened a connection: an XDP action. If it cannot go from here, it
 * is the classifier's, as any later one. */
__noinline int xdp_first(struct xdp_md *ctx, struct packet *p)
{
	struct settings *set = get_settings();
	__u32 id = p ? p->server : NO_SERVER;
	struct server *s = server_of(id);
	struct conn seen = {};
	struct route *route;

	if (!p)
		return XDP_PASS;
	if (s && xdp_route_in(ctx, p, s, p->forward, &route, set)) {
		count_in(p, s->service, id);
		STAGE(OPEN);
		return xdp_finish(ctx, p, NAT_DESTINATION, route, set);
	}
	if (conn_look(&p->flow, &seen))
		conn_set_packets(&seen, 0);
	report(p);
	return XDP_PASS;
}

static __always_inline int xdp_of_a_check(const struct packet *p)
{
	struct settings *set = get_settings();

	return set->steering && of_a_check(p, set);
}

/* A packet of no connection: an XDP action, or UNDECIDED if it opens none. */
static __always_inline int xdp_new(struct xdp_md *ctx, struct packet *p)
{
	int verdict;

	if (!xdp_opens(p) || xdp_of_a_check(p))
		return UNDECIDED;
	p->ahead = 1;
	verdict = conn_opened(0, p);
	STAGE(OPEN);
	if (verdict == VERDICT_DROP) {
		report(p);
		return XDP_DROP;
	}
	return p->news & NEWS_OPENED ? xdp_first(ctx, p) : UNDECIDED;
}

/* A plain packet that may be for us; the classifiers challenge clients while
 * there is a SYN flood. A function, for the stack's sake. */
static __noinline int xdp_parse(struct xdp_md *ctx, struct packet *p)
{
	struct settings *set = get_settings();
	int plain = 0;

	switch (xdp_family(ctx, set)) {
	case AF_INET:
		plain = xdp_plain(ctx, p, AF_INET);
		break;
	case AF_INET6:
		plain = xdp_plain(ctx, p, AF_INET6);
		break;
	}
	return plain && !(challengeable(p) && challenging(set));
}

/* Where a packet came in. */
enum xdp_side { XDP_CLIENTS, XDP_SERVERS, XDP_BOTH };

static __always_inline enum xdp_side xdp_side(struct xdp_md *ctx)
{
	struct settings *set = get_settings();

	if (set->one_device)
		return XDP_BOTH;
	return set->xdp[1].ifindex == ctx->ingress_ifindex ? XDP_SERVERS : XDP_CLIENTS;
}

/* A packet of a server's, if it is one: an XDP action, or UNDECIDED. */
__noinline int xdp_reply(struct xdp_md *ctx, struct packet *p)
{
	struct flow client = {};
	struct conn seen = {};
	int found;

	if (!p)
		return UNDECIDED;
	found = !!reply_conn(&p->flow, &client, &seen);
	p->news &= ~NEWS_ASIDE;
	p->ahead = 0;
	if (!found)
		return UNDECIDED;
	if (xdp_side(ctx) != XDP_SERVERS && !xdp_from_side_of(ctx, p, seen.server))
		return XDP_PASS;
	return xdp_out(ctx, p, &client, &seen);
}

/* Every plain packet that the fast path leaves: an XDP action. Where only clients are
 * expected, replies are looked for last. */
static __always_inline int xdp_decide(struct xdp_md *ctx, struct packet *p)
{
	enum xdp_side side = xdp_side(ctx);
	int action = UNDECIDED;

	if (!xdp_parse(ctx, p))
		return XDP_PASS;
	STAGE(PARSE);
	if (side == XDP_SERVERS)
		action = xdp_reply(ctx, p);
	if (action != UNDECIDED)
		return action;
	action = xdp_in(ctx, p);
	STAGE(FIND);
	if (action != UNDECIDED)
		return action;
	if (side == XDP_BOTH)
		action = xdp_reply(ctx, p);
	if (action == UNDECIDED)
		action = xdp_new(ctx, p);
	if (action == UNDECIDED && side == XDP_CLIENTS)
		action = xdp_reply(ctx, p);
	return action == UNDECIDED ? XDP_PASS : action;
}

static __always_inline int xdp_more(struct xdp_md *ctx, struct packet *p)
{
	int action = xdp_decide(ctx, p);

	/* Here, and not where the packet was sent: there is no stack left. */
	if (p->news & NEWS_OPENED)
		split_if_due();
	if (action != XDP_PASS && action != XDP_DROP)
		sync_packet(p);
	return action;
}

#endif
