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

/* What comes before the packet. */
struct tunnel {
	__u32 ip;     /* bytes of the outer IP header */
	__u32 shim;   /* bytes between the IP headers */
	__u32 length; /* of the packet [bytes] */
	__u32 sum;    /* of the packet, if a checksum covers it */
	__u64 added;  /* what the new headers add to a sum of all */
	__u8 checked; /* a checksum covers the packet */
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

/* The headers are written where tc or XDP have made room for them: 0, or -1 if there is
 * none. */
static __always_inline int gue_write(void *at, void *end, const struct packet *p,
				     const struct server *s, struct tunnel *t)
{
	struct gue_headers *h = at;
	__u32 words, sum = t->sum;

	if ((void *)(h + 1) > end)
		return -1;
	h->udp.source = gue_source(p);
	h->udp.dest = s->tunnel_port;
	h->udp.len = bpf_htons(sizeof(*h) + t->length);
	h->udp.check = 0;
	h->control = 0;
	h->protocol = t->inner;
	h->flags = 0;
	words = h->udp.source + h->udp.dest + h->udp.len + bpf_htons(t->inner);
	if (t->checked) {
		/* The pseudo header; what makes an IPv4-mapped address adds up to
		 * nothing. */
		sum = bpf_csum_diff(0, 0, (__be32 *)&s->source, sizeof(s->source), sum);
		sum = bpf_csum_diff(0, 0, (__be32 *)&s->addr, sizeof(s->addr), sum);
		sum = (sum & 0xffff) + (sum >> 16) + bpf_htons(IPPROTO_UDP) + h->udp.len;
		sum = csum_fold(sum + words);
		h->udp.check = sum ? sum : 0xffff; /* zero would mean none */
	}
	t->added += words + h->udp.check;
	return 0;
}

static __always_inline int gre_write(void *at, void *end, struct tunnel *t)
{
	__u32 protocol = bpf_htons(t->inner == IPPROTO_IPIP ? ETH_P_IP : ETH_P_IPV6);
	struct gre_header *h = at;

	if (at + GRE_SHORT > end)
		return -1;
	h->flags = t->checked ? bpf_htons(GRE_CSUM) : 0;
	h->protocol = protocol;
	t->added += h->flags + protocol;
	if (!t->checked)
		return 0;
	if ((void *)(h + 1) > end)
		return -1;
	h->check = csum_fold((t->sum & 0xffff) + (t->sum >> 16) + h->flags + protocol);
	h->reserved = 0;
	t->added += h->check;
	return 0;
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

/* The outer IP header, with the packet's own TTL and "don't fragment". Its checksum makes up
 * for the rest of it in a sum of all. */
static __always_inline int outer4_write(struct iphdr *ip, void *end, const struct packet *p,
					const struct server *s, const struct tunnel *t)
{
	__u64 sum;

	if ((void *)(ip + 1) > end)
		return -1;
	*(__u8 *)ip = IP_PLAIN;
	ip->tos = tunnel_tos(p);
	ip->tot_len = bpf_htons(sizeof(*ip) + t->shim + t->length);
	ip->id = 0;
	ip->frag_off = 0;
	if (p->flow.family == AF_INET && p->dont_fragment)
		ip->frag_off = bpf_htons(IP_DF);
	else
		ip->id = random_u32();
	ip->ttl = p->ttl - 1;
	ip->protocol = tunnel_protocol(s, t);
	ip->saddr = address_to4(&s->source);
	ip->daddr = address_to4(&s->addr);
	sum = (__u64)ip->saddr + ip->daddr + bpf_htons(IP_PLAIN << 8 | ip->tos) + ip->tot_len;
	sum += ip->id + ip->frag_off + bpf_htons(ip->ttl << 8 | ip->protocol);
	ip->check = csum_fold(csum_narrow(sum));
	return 0;
}

static __always_inline int outer6_write(struct ipv6hdr *ip, void *end, const struct packet *p,
					const struct server *s, struct tunnel *t)
{
	const __be32 *src = s->source.word, *dst = s->addr.word;
	__be32 *word = (__be32 *)ip;

	if ((void *)(ip + 1) > end)
		return -1;
	word[0] = bpf_htonl(6U << 28 | (__u32)tunnel_tos(p) << 20);
	word[1] =
		bpf_htonl((t->shim + t->length) << 16 | tunnel_protocol(s, t) << 8 | (p->ttl - 1));
	__builtin_memcpy(&ip->saddr, src, sizeof(ip->saddr));
	__builtin_memcpy(&ip->daddr, dst, sizeof(ip->daddr));
	t->added += (__u64)word[0] + word[1] + src[0] + src[1] + src[2] + src[3];
	t->added += (__u64)dst[0] + dst[1] + dst[2] + dst[3];
	return 0;
}

/* All that comes before the packet, in front of which there is room for it. */
static __always_inline int tunnel_write(void *data, void *end, const struct packet *p,
					const struct server *s, struct tunnel *t)
{
	struct ethhdr *eth = data;
	void *at = eth + 1;

	if (t->ip == sizeof(struct iphdr)) {
		if (outer4_write(at, end, p, s, t))
			return -1;
		eth->h_proto = bpf_htons(ETH_P_IP);
		at += sizeof(struct iphdr);
	} else {
		if (outer6_write(at, end, p, s, t))
			return -1;
		eth->h_proto = bpf_htons(ETH_P_IPV6);
		at += sizeof(struct ipv6hdr);
	}
	if (s->tunnel_type == TUNNEL_GUE)
		return gue_write(at, end, p, s, t);
	return s->tunnel_type == TUNNEL_GRE ? gre_write(at, end, t) : 0;
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

	if (p->part == WHOLE)
		sum_pending(skb, p->flow.protocol, (__be32 *)&p->flow.src, 2 * sizeof(p->flow.src),
			    t->length, &w);
	return sum_packet(skb, ETH_HEADER, &w, &t->sum);
}

/* Puts the packet into a tunnel, to a server that need not be in the table, and sends it by
 * the route that was found: a verdict. A function, for the stack's sake. */
__noinline int tunnel_send(struct __sk_buff *skb, struct packet *p, const struct server *s,
			   struct route *route)
{
	struct tunnel t = {};
	int verdict;

	if (!p || !s || !route)
		return VERDICT_DROP;
	tunnel_plan(p, s, &t);
	if (take_hop(skb, p) || (t.checked && tunnel_sum(skb, p, &t)) ||
	    bpf_skb_adjust_room(skb, t.ip + t.shim, BPF_ADJ_ROOM_MAC,
				tunnel_room_flags(p, s, &t, route)) ||
	    tunnel_write((void *)(long)skb->data, (void *)(long)skb->data_end, p, s, &t))
		return drop(p, REASON_DROP_REWRITE);
	/* If the hardware summed up the packet, that sum is to follow. */
	if (t.added)
		bpf_csum_update(skb, csum_narrow(t.added));
	STAGE(REWRITE);
	verdict = transmit(skb, p, route);
	STAGE(TRANSMIT);
	return verdict;
}

static __always_inline int tunnel_has_source(const struct server *s)
{
	return s->source.word[3] || s->source.word[0];
}

/* What a tunnel adds to a packet [bytes], as a negative number if it needs a checksum of the
 * packet. Global, so that the verifier walks what follows once and not for each kind. */
__noinline int tunnel_adds(const struct packet *p, const struct server *s)
{
	struct tunnel t = {};

	if (!p || !s)
		return 0;
	tunnel_plan(p, s, &t);
	return t.checked ? -(t.ip + t.shim) : t.ip + t.shim;
}

static __always_inline struct route *tunnel_find_route(void *ctx, enum hook hook,
						       const struct packet *p,
						       const struct server *s)
{
	int adds = tunnel_adds(p, s);
	struct route *route;

	/* XDP sums up no packet. */
	if (!tunnel_has_source(s) || (hook == HOOK_XDP && adds < 0))
		return 0;
	if (adds < 0)
		adds = -adds;
	return find_route(ctx, hook, p, &s->source, &s->addr, adds, &route) ? 0 : route;
}

/* Functions, for the stack's sake. */
static __noinline struct route *tunnel_route_skb(void *skb, const struct packet *p,
						 const struct server *s)
{
	return tunnel_find_route(skb, HOOK_TC, p, s);
}

static __noinline struct route *tunnel_route_xdp(void *xdp, const struct packet *p,
						 const struct server *s)
{
	return tunnel_find_route(xdp, HOOK_XDP, p, s);
}

/* The route of a packet by a tunnel, if it has one that takes it as it is. */
static __always_inline struct route *tunnel_route(void *ctx, enum hook hook, const struct packet *p,
						  const struct server *s)
{
	return hook == HOOK_XDP ? tunnel_route_xdp(ctx, p, s) : tunnel_route_skb(ctx, p, s);
}

/* To a server, which need not be in the table: a verdict, or REFUSED. */
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
	return tunnel_has_source(s) ? tunnel_send(skb, p, s, route)
				    : drop(p, REASON_DROP_NO_TUNNEL_SOURCE);
}

/* A verdict, or REFUSED. */
__noinline int tunnel(struct __sk_buff *skb, struct packet *p)
{
	__u32 id = p ? p->server : NO_SERVER;
	struct server *s = server_of(id);

	if (!p)
		return VERDICT_DROP;
	return s ? tunnel_to(skb, p, s) : drop(p, REASON_DROP_SERVER_DELETED);
}

#endif
