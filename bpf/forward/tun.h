/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tunnelling (LVS-TUN): the packet goes to the server as it is, inside another
 * one: IP in IP (RFC 2003, RFC 2473, RFC 4213), GRE (RFC 2784) or GUE
 * (draft-ietf-intarea-gue). The server has the virtual address too, and
 * answers by itself (ip_vs_tunnel_xmit, ip_vs_tunnel_xmit_v6).
 */
#ifndef IMBANG_FORWARD_TUN_H
#define IMBANG_FORWARD_TUN_H

#include "../rng.h"
#include "../sum.h"
#include "out.h"

/* IP_VS_CONN_F_TUNNEL_TYPE_* and IP_VS_TUNNEL_ENCAP_FLAG_* of
 * uapi/linux/ip_vs.h. */
#define TUNNEL_IPIP 0
#define TUNNEL_GUE 1
#define TUNNEL_GRE 2
#define TUNNEL_CSUM 0x1
#define TUNNEL_REMCSUM 0x2

#define GRE_CSUM 0x8000

struct gue_headers {
	struct udphdr udp;
	__u8 control; /* and lengths: none */
	__u8 protocol;
	__be16 flags;
};

struct gre_header {
	__be16 flags;
	__be16 protocol;
	__sum16 check;
	__be16 reserved;
};

#define GRE_SHORT 4 /* without checksum */

/* What comes before the packet. Its parts are written one after the other,
 * the outer IP header last. */
struct tunnel {
	__u32 ip;     /* bytes of the outer IP header */
	__u32 shim;   /* bytes between the IP headers */
	__u32 length; /* of the packet [bytes] */
	__u32 sum;    /* of the packet, if a checksum covers it */
	__u8 checked; /* it does */
	__u8 inner;   /* protocol number of the packet */
};

/*
 * A super-packet has no checksum of its own: the kernel splits it up behind
 * us, and would copy that of the whole. Both protocols allow to leave it out.
 */
static __always_inline void tunnel_plan(const struct packet *p, const struct server *s,
					struct tunnel *t)
{
	t->ip = address_family(&s->addr) == AF_INET ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	t->inner = p->flow.family == AF_INET ? IPPROTO_IPIP : IPPROTO_IPV6;
	t->length = p->length ? p->length : p->frame - ETH_HEADER;
	t->checked = !p->gso_size && s->tunnel_type != TUNNEL_IPIP &&
		     s->tunnel_flags & (TUNNEL_CSUM | TUNNEL_REMCSUM);
	if (s->tunnel_type == TUNNEL_GRE)
		t->checked = !p->gso_size && s->tunnel_flags & TUNNEL_CSUM;
	t->shim = 0;
	if (s->tunnel_type == TUNNEL_GUE)
		t->shim = sizeof(struct gue_headers);
	if (s->tunnel_type == TUNNEL_GRE)
		t->shim = t->checked ? sizeof(struct gre_header) : GRE_SHORT;
}

/* The source port, by which the server spreads flows over receive queues. */
static __always_inline __be16 gue_source(const struct packet *p)
{
	__u32 hash = address_fold(&p->flow.src, p->flow.family) ^ (__u32)p->flow.sport << 16 ^
		     p->flow.dport;

	/* The ephemeral ports of RFC 6335: 49152 to 65535. */
	return bpf_htons(0xc000 | hash_32(hash, 14));
}

static __always_inline int gue_write(struct __sk_buff *skb, struct packet *p,
				     const struct server *s, const struct tunnel *t)
{
	struct gue_headers h = {};
	__u32 sum;

	h.udp.source = gue_source(p);
	h.udp.dest = s->tunnel_port;
	h.udp.len = bpf_htons(sizeof(h) + t->length);
	h.protocol = t->inner;
	if (t->checked) {
		/* The pseudo header; what makes an IPv4-mapped address adds up
		 * to nothing. */
		sum = bpf_csum_diff(0, 0, (__be32 *)&s->source, sizeof(s->source), t->sum);
		sum = bpf_csum_diff(0, 0, (__be32 *)&s->addr, sizeof(s->addr), sum);
		sum = bpf_csum_diff(0, 0, (__be32 *)&h, sizeof(h), sum);
		sum = (sum & 0xffff) + (sum >> 16) + bpf_htons(IPPROTO_UDP) + h.udp.len;
		h.udp.check = csum_fold(sum);
		if (!h.udp.check)
			h.udp.check = 0xffff; /* zero would mean none */
	}
	return bpf_skb_store_bytes(skb, ETH_HEADER + t->ip, &h, sizeof(h), BPF_F_RECOMPUTE_CSUM);
}

static __always_inline int gre_write(struct __sk_buff *skb, const struct tunnel *t)
{
	struct gre_header h = {};

	h.protocol = bpf_htons(t->inner == IPPROTO_IPIP ? ETH_P_IP : ETH_P_IPV6);
	if (!t->checked)
		return bpf_skb_store_bytes(skb, ETH_HEADER + t->ip, &h, GRE_SHORT,
					   BPF_F_RECOMPUTE_CSUM);
	h.flags = bpf_htons(GRE_CSUM);
	h.check = csum_fold(bpf_csum_diff(0, 0, (__be32 *)&h, sizeof(h), t->sum));
	return bpf_skb_store_bytes(skb, ETH_HEADER + t->ip, &h, sizeof(h), BPF_F_RECOMPUTE_CSUM);
}

static __always_inline __u8 tunnel_protocol(const struct server *s, const struct tunnel *t)
{
	if (s->tunnel_type == TUNNEL_GUE)
		return IPPROTO_UDP;
	return s->tunnel_type == TUNNEL_GRE ? IPPROTO_GRE : t->inner;
}

/* The packet's traffic class; congestion that was met before the tunnel is
 * told inside it (RFC 3168, 9.1.1). */
static __always_inline __u8 tunnel_tos(const struct packet *p)
{
	return (p->tos & 3) == 3 ? (p->tos & ~3) | 2 : p->tos;
}

/* The outer IP header, with the packet's own TTL and "don't fragment". */
static __always_inline int outer_write(struct __sk_buff *skb, struct packet *p,
				       const struct server *s, const struct tunnel *t)
{
	struct ethhdr *eth;

	if (t->ip == sizeof(struct iphdr)) {
		struct iphdr ip = { .version = 4, .ihl = 5 };

		ip.tos = tunnel_tos(p);
		ip.tot_len = bpf_htons(sizeof(ip) + t->shim + t->length);
		if (p->flow.family == AF_INET && p->dont_fragment)
			ip.frag_off = bpf_htons(IP_DF);
		else
			ip.id = random_u32();
		ip.ttl = p->ttl - 1;
		ip.protocol = tunnel_protocol(s, t);
		ip.saddr = address_to4(&s->source);
		ip.daddr = address_to4(&s->addr);
		ip.check = csum_fold(bpf_csum_diff(0, 0, (__be32 *)&ip, sizeof(ip), 0));
		if (bpf_skb_store_bytes(skb, ETH_HEADER, &ip, sizeof(ip), BPF_F_RECOMPUTE_CSUM))
			return -1;
	} else {
		struct ipv6hdr ip = { .version = 6 };
		__u8 tos = tunnel_tos(p);

		ip.priority = tos >> 4;
		ip.flow_lbl[0] = tos << 4;
		ip.payload_len = bpf_htons(t->shim + t->length);
		ip.nexthdr = tunnel_protocol(s, t);
		ip.hop_limit = p->ttl - 1;
		__builtin_memcpy(&ip.saddr, &s->source, sizeof(ip.saddr));
		__builtin_memcpy(&ip.daddr, &s->addr, sizeof(ip.daddr));
		if (bpf_skb_store_bytes(skb, ETH_HEADER, &ip, sizeof(ip), BPF_F_RECOMPUTE_CSUM))
			return -1;
	}
	eth = (void *)(long)skb->data;
	if ((void *)(eth + 1) > (void *)(long)skb->data_end)
		return -1;
	eth->h_proto = t->ip == sizeof(struct iphdr) ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
	return 0;
}

/* How bpf_skb_adjust_room gets the new headers. TCP segments of a
 * super-packet become shorter if they would not fit the MTU else. The length
 * of a packet with an outer header that the kernel knows of cannot be changed:
 * one that is to be cut has none. */
static __always_inline __u64 tunnel_room_flags(const struct packet *p, const struct server *s,
					       const struct tunnel *t, const struct route *route)
{
	__u32 longest = packet_longest(p) + t->ip + t->shim;
	__u64 flags = t->ip == sizeof(struct iphdr) ? BPF_F_ADJ_ROOM_ENCAP_L3_IPV4
						    : BPF_F_ADJ_ROOM_ENCAP_L3_IPV6;

	if (p->cut)
		return BPF_F_ADJ_ROOM_FIXED_GSO;
	if (s->tunnel_type == TUNNEL_GUE)
		flags |= BPF_F_ADJ_ROOM_ENCAP_L4_UDP;
	if (s->tunnel_type == TUNNEL_GRE)
		flags |= BPF_F_ADJ_ROOM_ENCAP_L4_GRE;
	if (p->flow.protocol != IPPROTO_TCP || longest <= route->mtu)
		flags |= BPF_F_ADJ_ROOM_FIXED_GSO;
	return flags;
}

/* Sums up the packet, as it will stand behind the new headers. */
static __always_inline int tunnel_sum(struct __sk_buff *skb, struct packet *p, struct tunnel *t)
{
	struct whole w = { .length = t->length, .headers = p->transport - ETH_HEADER };
	union address ends[2] = { p->flow.src, p->flow.dst };

	if (p->part == WHOLE)
		sum_pending(skb, p->flow.protocol, (__be32 *)ends, sizeof(ends), t->length, &w);
	return sum_packet(skb, ETH_HEADER, &w, &t->sum);
}

static __always_inline int tunnel_wrap(struct __sk_buff *skb, struct packet *p,
				       const struct server *s, struct tunnel *t, __u64 flags)
{
	if (take_hop(skb, p))
		return -1;
	if (t->checked && tunnel_sum(skb, p, t))
		return -1;
	if (bpf_skb_adjust_room(skb, t->ip + t->shim, BPF_ADJ_ROOM_MAC, flags))
		return -1;
	if (s->tunnel_type == TUNNEL_GUE && gue_write(skb, p, s, t))
		return -1;
	if (s->tunnel_type == TUNNEL_GRE && gre_write(skb, t))
		return -1;
	return outer_write(skb, p, s, t);
}

/* To a server, which need not be in the table: a verdict, or REFUSED. Inlined, so that
 * no caller has a frame more on the stack. */
static __always_inline int tunnel_to(struct __sk_buff *skb, struct packet *p,
				     const struct server *s)
{
	struct tunnel t = {};
	struct route *route;
	int verdict;

	tunnel_plan(p, s, &t);
	verdict = route_or_refuse(skb, p, &s->source, &s->addr, t.ip + t.shim, &route);
	if (verdict == LOCAL)
		return pass(p, REASON_PASS_LOCAL);
	if (verdict != ROUTED)
		return verdict;
	if (!s->source.word[3] && !s->source.word[0])
		return drop(p, REASON_DROP_NO_TUNNEL_SOURCE);
	if (tunnel_wrap(skb, p, s, &t, tunnel_room_flags(p, s, &t, route)))
		return drop(p, REASON_DROP_REWRITE);
	return transmit(skb, p, route);
}

/* A verdict, or REFUSED. */
__noinline int tunnel(struct __sk_buff *skb, struct packet *p)
{
	__u32 id = p ? p->server : NO_SERVER;
	struct server *s = bpf_map_lookup_elem(&servers, &id);

	if (!p)
		return VERDICT_DROP;
	if (!s)
		return drop(p, REASON_DROP_SERVER_DELETED);
	return tunnel_to(skb, p, s);
}

#endif
