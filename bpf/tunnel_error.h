/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ICMP errors about the path to a server behind a tunnel come to the director,
 * which put on the outer header: the client is told, about the packet inside
 * (the part of ip_vs_in_icmp about tunnels). As in Linux, of IPv4 in IPv4.
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
	struct iphdr outer;
	__u32 inner; /* offset in the frame */
	__u16 type;  /* TUNNEL_* */
	__be16 port; /* of GUE */
};

/* 0, or an error if it is none of the tunnels that servers have. */
static __always_inline int tunnelled_parse(struct __sk_buff *skb, const struct packet *p,
					   struct tunnelled *t)
{
	__u32 at = p->transport + sizeof(struct icmp_header);
	struct gue_headers gue;
	__be16 gre[2];

	if (bpf_skb_load_bytes(skb, at, &t->outer, sizeof(t->outer)) || t->outer.version != 4 ||
	    t->outer.ihl < 5 || t->outer.frag_off & bpf_htons(IP_OFFSET))
		return -1;
	t->inner = at + t->outer.ihl * 4;
	switch (t->outer.protocol) {
	case IPPROTO_IPIP:
		t->type = TUNNEL_IPIP;
		return 0;
	case IPPROTO_GRE:
		if (bpf_skb_load_bytes(skb, t->inner, gre, sizeof(gre)) ||
		    gre[0] & ~bpf_htons(GRE_CSUM) || gre[1] != bpf_htons(ETH_P_IP))
			return -1;
		t->type = TUNNEL_GRE;
		t->inner += gre[0] ? sizeof(struct gre_header) : GRE_SHORT;
		return 0;
	case IPPROTO_UDP:
		if (bpf_skb_load_bytes(skb, t->inner, &gue, sizeof(gue)) || gue.control ||
		    gue.protocol != IPPROTO_IPIP)
			return -1;
		t->type = TUNNEL_GUE;
		t->port = gue.udp.dest;
		t->inner += sizeof(gue);
		return 0;
	}
	return -1;
}

/* Reads the packet inside into p->flow; 0 if it is whole enough. The message
 * ends at `end`: there may be padding behind. */
static __always_inline int tunnelled_flow(struct __sk_buff *skb, struct packet *p, __u32 at,
					  __u32 end)
{
	struct iphdr ip;
	__be16 ports[2];

	if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)) || ip.version != 4 || ip.ihl < 5 ||
	    ip.frag_off & bpf_htons(IP_OFFSET) || at + ip.ihl * 4 + QUOTED_LEAST > end ||
	    bpf_skb_load_bytes(skb, at + ip.ihl * 4, ports, sizeof(ports)))
		return -1;
	address_from4(&p->flow.src, ip.saddr);
	address_from4(&p->flow.dst, ip.daddr);
	p->flow.sport = ports[0];
	p->flow.dport = ports[1];
	p->flow.protocol = ip.protocol;
	p->length = bpf_ntohs(ip.tot_len);
	p->dont_fragment = !!(ip.frag_off & bpf_htons(IP_DF));
	return 0;
}

static __always_inline int is_tunnel_to(const struct server *s, const struct tunnelled *t)
{
	return encapsulates(s->forward) && s->tunnel_type == t->type &&
	       address_family(&s->addr) == AF_INET && address_to4(&s->addr) == t->outer.daddr &&
	       (t->type != TUNNEL_GUE || s->tunnel_port == t->port);
}

/* Lays the packet inside bare. Returns TOLD_ON, or a verdict if the error is
 * not about a balanced connection. */
__noinline int tunnel_error(struct __sk_buff *skb, struct packet *p)
{
	struct icmp_header icmp;
	struct tunnelled t = {};
	struct server *s;
	struct conn seen;
	__u32 server, end, headers, mtu;

	if (!p)
		return VERDICT_DROP;
	end = ETH_HEADER + p->length;
	if (p->flow.family != AF_INET || p->part != WHOLE ||
	    bpf_skb_load_bytes(skb, p->transport, &icmp, sizeof(icmp)) ||
	    !icmp_is_error(AF_INET, icmp.type) || tunnelled_parse(skb, p, &t) ||
	    tunnelled_flow(skb, p, t.inner, end))
		return pass(p, REASON_PASS_ICMP);
	if (!conn_look(&p->flow, &seen) || !encapsulates(seen.forward))
		return pass(p, REASON_PASS_ICMP);
	server = seen.server;
	s = bpf_map_lookup_elem(&servers, &server);
	if (!s || !is_tunnel_to(s, &t))
		return pass(p, REASON_PASS_ICMP);
	p->kind = icmp.type << 8 | icmp.code;
	p->mtu = 0;
	if (p->kind == ICMP_KIND(ICMP_DEST_UNREACH, ICMP_FRAG_NEEDED)) {
		headers = t.inner - p->transport - sizeof(struct icmp_header);
		mtu = bpf_ntohl(icmp.rest) & 0xffff;
		/* The stack learns of it; the client need not, or cannot. */
		if (!p->dont_fragment || mtu < headers + LEAST_MTU)
			return pass(p, REASON_PASS_ICMP);
		p->mtu = mtu - headers;
	}
	count_out(p, server);
	if (end < skb->len && bpf_skb_change_tail(skb, end, 0))
		return drop(p, REASON_DROP_REWRITE);
	if (bpf_skb_adjust_room(skb, -(__s32)(t.inner - ETH_HEADER), BPF_ADJ_ROOM_MAC, 0))
		return drop(p, REASON_DROP_REWRITE);
	return TOLD_ON;
}

/* Makes the error about the packet that was laid bare, and sends it to the
 * client. */
__noinline int tell_on(struct __sk_buff *skb, struct packet *p)
{
	struct route *route;

	if (!p)
		return VERDICT_DROP;
	if (!p->mtu && !icmp_allowed(&p->flow.src))
		return drop(p, REASON_DROP_RATE_LIMIT);
	p->length = 0; /* the skb's: what was quoted of it */
	p->to = p->flow.dst;
	if (icmp_error_packet4(skb, p, p->kind, 1))
		return drop(p, REASON_DROP_REWRITE);
	if (find_route(skb, HOOK_TC, p, &p->flow.dst, &p->flow.src, 0, &route) !=
	    BPF_FIB_LKUP_RET_SUCCESS)
		return drop(p, REASON_REFUSED_NO_ROUTE);
	return transmit(skb, p, route);
}

#endif
