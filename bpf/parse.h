/* SPDX-License-Identifier: GPL-2.0-only */
/* From an skb to a struct packet. */
#ifndef IMBANG_PARSE_H
#define IMBANG_PARSE_H

#include "address.h"
#include "packet.h"

#define PACKET_HOST 0 /* to our hardware address: linux/if_packet.h */

#define IP_DF 0x4000
#define IP_MF 0x2000
#define IP_OFFSET 0x1fff

#define IP6_MF 0x0001
#define IP6_OFFSET 0xfff8

#define PARSED 0xff /* parse() found a packet that may be balanced */

/* Where a transport header may begin: all that direct access reaches. */
#define MAX_TRANSPORT 0xff

#define VLAN_ID 0xfff /* of a tag */

/* Makes the first `bytes` of the packet readable in place. */
static __always_inline int pull(struct __sk_buff *skb, __u32 bytes)
{
	if ((void *)(long)skb->data + bytes <= (void *)(long)skb->data_end)
		return 0;
	return bpf_skb_pull_data(skb, bytes);
}

static __always_inline int is_icmp(const struct packet *p)
{
	return p->flow.protocol == (p->flow.family == AF_INET ? IPPROTO_ICMP : IPPROTO_ICMPV6);
}

/* A later fragment of IPv6 may carry on with options that the first one began
 * with: the first one tells what is behind them. */
static __always_inline int hides_protocol(const struct packet *p)
{
	return p->part == LATER_PART && p->flow.protocol == IPPROTO_DSTOPTS;
}

/* Bytes of the transport header that are looked at. Of SCTP there is a chunk behind them, which is
 * not pulled: the kernel keeps that of a super-packet in another skb, and could not segment it
 * then. */
static __always_inline __u32 transport_size(__u8 protocol)
{
	switch (protocol) {
	case IPPROTO_TCP:
		return sizeof(struct tcphdr);
	case IPPROTO_SCTP:
		return offsetof(struct sctp_header, chunk);
	}
	return sizeof(struct udphdr); /* ICMP's are as long */
}

/* IPv4 options (RFC 791, 3.1). */
#define OPTION_END 0
#define OPTION_NOP 1
#define OPTION_LOOSE_ROUTE 131
#define OPTION_STRICT_ROUTE 137
#define MAX_OPTIONS 40 /* of a byte each */

struct options {
	struct __sk_buff *skb;
	__u32 offset;
	__u32 end;
	__u8 refused;
};

static long parse_option(__u32 i, struct options *o)
{
	struct {
		__u8 type;
		__u8 length; /* [bytes], with these two; not of an OPTION_NOP */
	} option;

	if (o->offset >= o->end || bpf_skb_load_bytes(o->skb, o->offset, &option, sizeof(option)) ||
	    option.type == OPTION_END)
		return 1;
	if (option.type == OPTION_NOP) {
		o->offset++;
		return 0;
	}
	o->offset += option.length;
	o->refused = option.type == OPTION_LOOSE_ROUTE || option.type == OPTION_STRICT_ROUTE ||
		     option.length < sizeof(option) || o->offset > o->end;
	return o->refused;
}

/* Whether a header has a source route or malformed options. Linux examines options before the
 * hook at which IPVS balances (ip_rcv_options): it drops packets with a source route unless
 * accept_source_route is set, and those with malformed options always. */
static __always_inline int options_refused(struct __sk_buff *skb, const struct packet *p)
{
	struct options o = { .skb = skb, .offset = ETH_HEADER + sizeof(struct iphdr) };

	/* Read again: of what was compared, older verifiers know too much (sched/contract.h). */
	o.end = *(const volatile __u16 *)&p->transport;
	bpf_loop(MAX_OPTIONS, parse_option, &o, 0);
	return o.refused;
}

/* The IPv4 header; PARSED, or the reason to pass the packet to the stack. */
static __always_inline int parse_ip4(struct __sk_buff *skb, struct packet *p)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + ETH_HEADER;
	__u16 fragment;

	if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl < 5)
		return REASON_PASS_TRUNCATED;
	p->transport = ETH_HEADER + ip->ihl * 4;
	p->length = bpf_ntohs(ip->tot_len);
	p->ttl = ip->ttl;
	p->tos = ip->tos;
	fragment = bpf_ntohs(ip->frag_off);
	p->dont_fragment = !!(fragment & IP_DF);
	if (fragment & (IP_MF | IP_OFFSET)) {
		p->part = fragment & IP_OFFSET ? LATER_PART : FIRST_PART;
		p->id = ip->id;
	}
	address_from4(&p->flow.src, ip->saddr);
	address_from4(&p->flow.dst, ip->daddr);
	p->flow.protocol = ip->protocol;
	p->flow.family = AF_INET;
	if (p->transport > ETH_HEADER + sizeof(*ip) && options_refused(skb, p))
		return REASON_PASS_IP_OPTIONS;
	return PARSED;
}

/* What comes between an IPv6 header and the transport's (RFC 8200, 4). */
struct extensions {
	struct __sk_buff *skb;
	__u32 id; /* of a fragmented packet */
	__u32 offset;
	__u8 next;
	__u8 routed; /* a routing header names the final destination */
	__u8 part;   /* enum part */
};

struct extension_header {
	__u8 next;
	__u8 length; /* [8 bytes], the first not counted */
	union {
		struct {
			__u8 type;
			__u8 segments_left;
		} routing;
		__be16 offset; /* of a fragment, with flags */
	};
	__be32 id; /* of a fragmented packet */
};

#define MAX_EXTENSIONS 8

static long parse_extension(__u32 i, struct extensions *e)
{
	struct extension_header h;
	__u8 next = e->next;

	if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_DSTOPTS &&
	    next != IPPROTO_AH && next != IPPROTO_FRAGMENT)
		return 1;
	if (bpf_skb_load_bytes(e->skb, e->offset, &h, sizeof(h)))
		return 1;
	e->next = h.next;
	if (next == IPPROTO_FRAGMENT) {
		__u16 offset = bpf_ntohs(h.offset);

		e->offset += sizeof(h);
		/* An atomic fragment (RFC 6946) is a whole packet. */
		if (!(offset & (IP6_MF | IP6_OFFSET)))
			return 0;
		e->id = h.id;
		e->part = offset & IP6_OFFSET ? LATER_PART : FIRST_PART;
		return offset & IP6_OFFSET ? 1 : 0;
	}
	if (next == IPPROTO_ROUTING && h.routing.segments_left)
		e->routed = 1;
	e->offset += next == IPPROTO_AH ? (h.length + 2) * 4 : (h.length + 1) * 8;
	return 0;
}

static __always_inline int parse_extensions(struct __sk_buff *skb, struct packet *p, __u8 next)
{
	struct extensions e = { .skb = skb, .offset = p->transport, .next = next };

	bpf_loop(MAX_EXTENSIONS, parse_extension, &e, 0);
	if (e.routed || e.offset > MAX_TRANSPORT)
		return REASON_PASS_EXTENSION_HEADER;
	p->part = e.part;
	p->id = e.id;
	p->flow.protocol = e.next;
	p->transport = e.offset;
	return PARSED;
}

/* The IPv6 header, and the extension headers behind it. */
static __always_inline int parse_ip6(struct __sk_buff *skb, struct packet *p)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ipv6hdr *ip = data + ETH_HEADER;
	__u8 next;

	if ((void *)(ip + 1) > end || ip->version != 6)
		return REASON_PASS_TRUNCATED;
	p->transport = ETH_HEADER + sizeof(*ip);
	if (ip->payload_len)
		p->length = sizeof(*ip) + bpf_ntohs(ip->payload_len);
	p->ttl = ip->hop_limit;
	p->tos = ip->priority << 4 | ip->flow_lbl[0] >> 4;
	p->dont_fragment = 1; /* routers never do */
	__builtin_memcpy(&p->flow.src, &ip->saddr, sizeof(p->flow.src));
	__builtin_memcpy(&p->flow.dst, &ip->daddr, sizeof(p->flow.dst));
	next = ip->nexthdr;
	p->flow.protocol = next;
	p->flow.family = AF_INET6;
	/* These stand for IPv4 in the tables; none comes by the wire. */
	if (address_family(&p->flow.src) == AF_INET || address_family(&p->flow.dst) == AF_INET)
		return REASON_PASS_MAPPED_ADDRESS;
	if (next == IPPROTO_TCP || next == IPPROTO_UDP || next == IPPROTO_ICMPV6)
		return PARSED;
	return parse_extensions(skb, p, next);
}

/* The first chunk of an SCTP packet; an ABORT behind a COOKIE chunk comes
 * before that (set_sctp_state). */
static __always_inline int parse_chunks(struct __sk_buff *skb, struct packet *p)
{
	__u32 at = p->transport + offsetof(struct sctp_header, chunk);
	struct sctp_chunk first, next;

	if (ETH_HEADER + p->length < at + sizeof(first))
		return REASON_PASS_TRUNCATED;
	if (bpf_skb_load_bytes(skb, at, &first, sizeof(first)))
		return REASON_PASS_TRUNCATED;
	p->chunk = first.type;
	if (first.type != CHUNK_COOKIE_ECHO && first.type != CHUNK_COOKIE_ACK)
		return PARSED;
	at += (bpf_ntohs(first.length) + 3) & ~3U;
	if (!bpf_skb_load_bytes(skb, at, &next, sizeof(next)) && next.type == CHUNK_ABORT)
		p->chunk = CHUNK_ABORT;
	return PARSED;
}

/* Ports and flags of a packet that begins with a transport header. */
static __always_inline int parse_transport(struct __sk_buff *skb, struct packet *p)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	void *header = data + (p->transport & MAX_TRANSPORT);
	struct tcphdr *tcp = header;
	struct udphdr *udp = header;

	if ((void *)(udp + 1) > end)
		return REASON_PASS_TRUNCATED;
	p->headers = p->transport - ETH_HEADER + sizeof(*udp);
	if (is_icmp(p))
		return PARSED;
	p->flow.sport = udp->source;
	p->flow.dport = udp->dest;
	if (p->flow.protocol == IPPROTO_TCP) {
		if ((void *)(tcp + 1) > end)
			return REASON_PASS_TRUNCATED;
		p->tcp_bits = ((__u8 *)tcp)[13];
		p->headers = p->transport - ETH_HEADER + tcp->doff * 4;
	} else if (p->flow.protocol == IPPROTO_SCTP) {
		return parse_chunks(skb, p);
	}
	return PARSED;
}

/* Fills p, whose fields are 0; returns PARSED, or the reason to pass the
 * packet by. */
__noinline int parse(struct __sk_buff *skb, struct packet *p)
{
	__u32 need;
	int parsed;

	if (!p)
		return REASON_PASS_TRUNCATED;
	if (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6))
		return REASON_PASS_NOT_IP;
	/* A tag without a VLAN has a priority only. The stack takes it off behind this hook. */
	if (skb->vlan_present && !(skb->vlan_tci & VLAN_ID) && bpf_skb_vlan_pop(skb))
		return REASON_PASS_TRUNCATED;
	/* This hook comes before the stack throws away what is for other hosts,
	 * and before it sorts tagged frames into their VLANs. */
	if (skb->pkt_type != PACKET_HOST || skb->vlan_present)
		return REASON_PASS_NOT_OURS;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (pull(skb, ETH_HEADER + sizeof(struct iphdr)))
			return REASON_PASS_TRUNCATED;
		parsed = parse_ip4(skb, p);
	} else {
		if (pull(skb, ETH_HEADER + sizeof(struct ipv6hdr)))
			return REASON_PASS_TRUNCATED;
		parsed = parse_ip6(skb, p);
	}
	if (parsed != PARSED)
		return parsed;
	if (p->flow.protocol != IPPROTO_TCP && p->flow.protocol != IPPROTO_UDP &&
	    p->flow.protocol != IPPROTO_SCTP && !is_icmp(p) && !hides_protocol(p))
		return REASON_PASS_PROTOCOL;

	need = p->transport;
	if (p->part != LATER_PART)
		need += transport_size(p->flow.protocol);
	/* A frame may be padded behind the packet, never shorter than it. A
	 * super-packet beyond 64 KiB (BIG TCP) has no length at all. */
	if (!p->length && (!skb->gso_size || p->flow.protocol != IPPROTO_TCP))
		return REASON_PASS_TRUNCATED;
	if (p->length && (ETH_HEADER + p->length < need || ETH_HEADER + p->length > skb->len))
		return REASON_PASS_TRUNCATED;
	p->mark = skb->mark;
	p->frame = skb->len;
	p->ifindex = skb->ingress_ifindex;
	p->gso_size = skb->gso_size;
	p->segments = skb->gso_segs ? skb->gso_segs : 1;
	if (p->part == LATER_PART) {
		p->headers = p->transport - ETH_HEADER;
		return PARSED;
	}
	if (pull(skb, need))
		return REASON_PASS_TRUNCATED;
	return parse_transport(skb, p);
}

#endif
