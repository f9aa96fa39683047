/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ICMP errors about the path to a server behind a tunnel come to the director,
 * which put on the outer header: the client is told, about the packet inside
 * (the part of ip_vs_in_icmp about tunnels; RFC 2473, 8). Linux does so for IPv4 in
 * IPv4 alone; an outer IPv6 header is never fragmented by routers, so that a client
 * who is not told loses what is too big for one of them: that is told for each tunnel.
 */
#ifndef IMBANG_TUNNEL_ERROR_H
#define IMBANG_TUNNEL_ERROR_H

#include "conn.h"
#include "forward/method.h"
#include "forward/tun.h"
#include "icmp.h"
#include "related.h"

#define LEAST_MTU 68 /* every IPv4 host takes packets as long (RFC 791, 3.2) */

/* The packet that the error quotes: the tunnel's header, and where the packet
 * of the client begins. */
struct tunnelled {
	__u32 inner;       /* offset in the frame */
	__u16 type;        /* TUNNEL_* */
	__be16 port;       /* of GUE */
	__u8 family;       /* of the inner packet */
	__u8 may_fragment; /* the outer packet, on its way */
	__u8 protocol;     /* behind the outer header */
	__u8 pad;
	union address to; /* the outer packet */
};

static __always_inline int tunnelled_outer(struct __sk_buff *skb, __u8 family, __u32 at,
					   struct tunnelled *t)
{
	struct ipv6hdr six;
	struct iphdr four;

	if (family == AF_INET6) {
		if (bpf_skb_load_bytes(skb, at, &six, sizeof(six)) || six.version != 6)
			return -1;
		__builtin_memcpy(&t->to, &six.daddr, sizeof(t->to));
		t->protocol = six.nexthdr;
		t->inner = at + sizeof(six);
		return 0;
	}
	if (bpf_skb_load_bytes(skb, at, &four, sizeof(four)) || four.version != 4 || four.ihl < 5 ||
	    four.frag_off & bpf_htons(IP_OFFSET))
		return -1;
	address_from4(&t->to, four.daddr);
	t->protocol = four.protocol;
	t->may_fragment = !(four.frag_off & bpf_htons(IP_DF));
	t->inner = at + four.ihl * 4;
	return 0;
}

static __always_inline int tunnelled_gre(struct __sk_buff *skb, struct tunnelled *t)
{
	__be16 gre[2];

	if (bpf_skb_load_bytes(skb, t->inner, gre, sizeof(gre)) || gre[0] & ~bpf_htons(GRE_CSUM) ||
	    (gre[1] != bpf_htons(ETH_P_IP) && gre[1] != bpf_htons(ETH_P_IPV6)))
		return -1;
	t->type = TUNNEL_GRE;
	t->family = gre[1] == bpf_htons(ETH_P_IP) ? AF_INET : AF_INET6;
	t->inner += gre[0] ? sizeof(struct gre_header) : GRE_SHORT;
	return 0;
}

static __always_inline int tunnelled_gue(struct __sk_buff *skb, struct tunnelled *t)
{
	struct gue_headers gue;

	if (bpf_skb_load_bytes(skb, t->inner, &gue, sizeof(gue)) || gue.control ||
	    (gue.protocol != IPPROTO_IPIP && gue.protocol != IPPROTO_IPV6))
		return -1;
	t->type = TUNNEL_GUE;
	t->port = gue.udp.dest;
	t->family = gue.protocol == IPPROTO_IPIP ? AF_INET : AF_INET6;
	t->inner += sizeof(gue);
	return 0;
}

/* 0, or an error if it is none of the tunnels that servers have. */
static __noinline int tunnelled_parse(struct __sk_buff *skb, const struct packet *p,
				      struct tunnelled *t)
{
	if (tunnelled_outer(skb, p->flow.family, p->transport + sizeof(struct icmp_header), t))
		return -1;
	switch (t->protocol) {
	case IPPROTO_IPIP:
	case IPPROTO_IPV6:
		t->type = TUNNEL_IPIP;
		t->family = t->protocol == IPPROTO_IPIP ? AF_INET : AF_INET6;
		return 0;
	case IPPROTO_GRE:
		return tunnelled_gre(skb, t);
	case IPPROTO_UDP:
		return tunnelled_gue(skb, t);
	}
	return -1;
}

/* Reads the packet inside into p->flow; 0 if it is whole enough. The message
 * ends at `end`: there may be padding behind. */
static __noinline int tunnelled_flow(struct __sk_buff *skb, struct packet *p,
				     const struct tunnelled *t, __u32 end)
{
	struct quoted q = { .ip = t->inner, .flow.family = t->family };
	__be16 ports[2];

	if ((t->family == AF_INET ? quoted_ip4(skb, &q) : quoted_ip6(skb, &q)) ||
	    q.part == LATER_PART || q.transport + QUOTED_LEAST > end ||
	    bpf_skb_load_bytes(skb, q.transport, ports, sizeof(ports)))
		return -1;
	q.flow.sport = ports[0];
	q.flow.dport = ports[1];
	p->flow = q.flow;
	p->length = q.length;
	return 0;
}

static __always_inline int is_tunnel_to(const struct server *s, const struct tunnelled *t)
{
	return encapsulates(s->forward) && s->tunnel_type == t->type &&
	       address_equal(&s->addr, &t->to) &&
	       (t->type != TUNNEL_GUE || s->tunnel_port == t->port);
}

/*
 * What the client is told, of the error that the director got: type and code; 0: nothing.
 * Of IPv4 in IPv4 that is any error, as with Linux; of other tunnels, that a packet is
 * too big, in the family of the packet inside (RFC 7915, 5.2 and 4.2).
 */
static __always_inline __u32 tunnel_kind(const struct icmp_header *icmp, __u8 outer, __u8 inner)
{
	__u32 kind = ICMP_KIND(icmp->type, icmp->code);

	if (!icmp_is_error(outer, icmp->type))
		return 0;
	if (outer == AF_INET && inner == AF_INET)
		return kind;
	if (kind !=
	    (outer == AF_INET ? icmp_kind4(ICMP_ERROR_TOO_BIG) : icmp_kind6(ICMP_ERROR_TOO_BIG)))
		return 0;
	return inner == AF_INET ? icmp_kind4(ICMP_ERROR_TOO_BIG) : icmp_kind6(ICMP_ERROR_TOO_BIG);
}

/* The MTU of an error that has one: packet.mtu, without the tunnel's headers. An IPv6
 * client is never told less than it need obey (RFC 2473, 7.1). Negative if the client
 * need not be told, or cannot obey. */
static __always_inline int tunnel_mtu(struct packet *p, const struct tunnelled *t, __u32 mtu)
{
	__u32 headers = t->inner - p->transport - sizeof(struct icmp_header);
	__u32 least = t->family == AF_INET ? LEAST_MTU : IPV6_LEAST_MTU;

	p->mtu = 0;
	if (p->kind != icmp_kind4(ICMP_ERROR_TOO_BIG) && p->kind != icmp_kind6(ICMP_ERROR_TOO_BIG))
		return 0;
	if (t->may_fragment || mtu > 0xffff)
		return -1;
	mtu = mtu > headers ? mtu - headers : 0;
	if (t->family == AF_INET6 && mtu < least)
		mtu = least;
	if (mtu < least || (t->family == AF_INET6 && p->length <= mtu))
		return -1;
	p->mtu = mtu;
	return 0;
}

/* Takes all before the packet inside away, and makes it the skb's. */
static __always_inline int tunnelled_bare(struct __sk_buff *skb, const struct tunnelled *t,
					  __u8 outer)
{
	__s32 extra = t->inner - ETH_HEADER;
	__be16 protocol = t->family == AF_INET ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);

	if (outer != t->family) {
		/* The helper makes the header as long as the other family's. */
		if (bpf_skb_change_proto(skb, protocol, 0))
			return -1;
		extra += t->family == AF_INET ? -20 : 20;
	}
	return bpf_skb_adjust_room(skb, -extra, BPF_ADJ_ROOM_MAC, 0) ||
	       bpf_skb_store_bytes(skb, offsetof(struct ethhdr, h_proto), &protocol,
				   sizeof(protocol), 0);
}

/* The server of a connection whose packet is quoted; NO_SERVER if there is none by such
 * a tunnel. */
static __noinline __u32 tunnel_server(const struct packet *p, const struct tunnelled *t)
{
	struct server *s;
	struct conn seen = {};
	__u32 server;

	if (!conn_look(&p->flow, &seen) || !encapsulates(seen.forward))
		return NO_SERVER;
	server = seen.server;
	s = server_far(server);
	return s && is_tunnel_to(s, t) ? server : NO_SERVER;
}

/* Lays the packet inside bare. Returns TOLD_ON, or a verdict if the error is
 * not about a balanced connection. */
__noinline int tunnel_error(struct __sk_buff *skb, struct packet *p)
{
	struct icmp_header icmp;
	struct tunnelled t = {};
	__u32 server, end;
	__u8 outer;
	int near;

	if (!p)
		return VERDICT_DROP;
	end = ETH_HEADER + p->length;
	outer = p->flow.family;
	if (p->part != WHOLE || bpf_skb_load_bytes(skb, p->transport, &icmp, sizeof(icmp)) ||
	    tunnelled_parse(skb, p, &t))
		return pass(p, REASON_PASS_ICMP);
	p->kind = tunnel_kind(&icmp, outer, t.family);
	near = p->kind && from_side_of(skb, p, &t.to, NO_SERVER);
	if (!p->kind || tunnelled_flow(skb, p, &t, end))
		return pass(p, REASON_PASS_ICMP);
	server = tunnel_server(p, &t);
	if (server == NO_SERVER ||
	    tunnel_mtu(p, &t, bpf_ntohl(icmp.rest) & (outer == AF_INET ? 0xffff : ~0U)))
		return pass(p, REASON_PASS_ICMP);
	if (!near)
		return drop(p, REASON_DROP_REVERSE_PATH);
	count_out(p, server);
	if ((end < skb->len && bpf_skb_change_tail(skb, end, 0)) || tunnelled_bare(skb, &t, outer))
		return drop(p, REASON_DROP_REWRITE);
	return TOLD_ON;
}

/* Makes the error about the packet that was laid bare, and sends it to the
 * client. */
__noinline int tell_on(struct __sk_buff *skb, struct packet *p)
{
	struct route *route;
	int rc;

	if (!p)
		return VERDICT_DROP;
	if (!answer_allowed(p, p->mtu ? ANSWER_MTU : ANSWER_ERROR))
		return VERDICT_DROP;
	p->length = 0; /* the skb's: what was quoted of it */
	p->to = p->flow.dst;
	rc = p->flow.family == AF_INET ? icmp_error_packet4(skb, p, p->kind, 1)
				       : icmp_error_packet6(skb, p, p->kind, 1);
	if (rc)
		return drop(p, REASON_DROP_REWRITE);
	if (find_route(skb, HOOK_TC, p, &p->flow.dst, &p->flow.src, 0, &route) !=
	    BPF_FIB_LKUP_RET_SUCCESS)
		return drop(p, REASON_REFUSED_NO_ROUTE);
	return transmit(skb, p, route);
}

#endif
