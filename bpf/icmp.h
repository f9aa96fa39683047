/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ICMP errors (RFC 792, RFC 4443) about a packet that cannot be forwarded,
 * made of the packet itself and sent back the way it came.
 */
#ifndef IMBANG_ICMP_H
#define IMBANG_ICMP_H

#include "clock.h"
#include "counters.h"
#include "csum.h"
#include "element.h"
#include "parse.h"
#include "sum.h"

#define ICMP_DEST_UNREACH 3
#define ICMP_HOST_UNREACH 1
#define ICMP_PORT_UNREACH 3
#define ICMP_FRAG_NEEDED 4
#define ICMP_TIME_EXCEEDED 11

#define ICMP6_DEST_UNREACH 1
#define ICMP6_ADDR_UNREACH 3
#define ICMP6_PORT_UNREACH 4
#define ICMP6_PACKET_TOO_BIG 2
#define ICMP6_TIME_EXCEEDED 3

/* An error message is at most 576 bytes long (RFC 1812, 4.3.2.3), or 1280 in
 * IPv6 (RFC 4443, 2.4). */
#define ICMP_QUOTE (576 - sizeof(struct icmp_frame4))
#define ICMP6_QUOTE (1280 - sizeof(struct icmp_frame6))

struct icmp_header {
	__u8 type;
	__u8 code;
	__sum16 checksum;
	__be32 rest; /* the MTU, in "too big" (RFC 1191: its lower half) */
};

struct icmp_frame4 {
	struct iphdr ip;
	struct icmp_header icmp;
};

struct icmp_frame6 {
	struct ipv6hdr ip;
	struct icmp_header icmp;
};

/* Makes room for the error's headers, and sums up the quoted packet behind
 * them, on top of `sum`. */
static __always_inline int icmp_quote(struct __sk_buff *skb, const struct whole *q, __u32 room,
				      __u32 sum, __u16 *checksum)
{
	if (bpf_skb_change_tail(skb, ETH_HEADER + q->length, 0) ||
	    bpf_skb_adjust_room(skb, room, BPF_ADJ_ROOM_MAC, 0) ||
	    sum_packet(skb, ETH_HEADER + room, q, &sum))
		return -1;
	*checksum = csum_fold(sum);
	return 0;
}

/* A packet of which only a part is quoted shows whether its checksum is complete. */
static __always_inline void icmp_part(struct __sk_buff *skb, __u32 length, struct whole *q)
{
	if (q->pending && q->length < length)
		q->pending = sum_unfinished(skb, ETH_HEADER + q->headers, length - q->headers,
					    q->pseudo);
}

/* The frame goes back to who sent it. */
static __noinline int icmp_turn_back(struct __sk_buff *skb)
{
	struct ethhdr eth;
	__u8 mac[ETH_ALEN];

	if (bpf_skb_load_bytes(skb, 0, &eth, sizeof(eth)))
		return -1;
	__builtin_memcpy(mac, eth.h_dest, ETH_ALEN);
	__builtin_memcpy(eth.h_dest, eth.h_source, ETH_ALEN);
	__builtin_memcpy(eth.h_source, mac, ETH_ALEN);
	return bpf_skb_store_bytes(skb, 0, &eth, sizeof(eth), 0);
}

#define ICMP_KIND(type, code) ((type) << 8 | (code))

/* Type and code of an error. */
static __always_inline __u32 icmp_kind4(__u32 error)
{
	switch (error) {
	case ICMP_ERROR_TTL:
		return ICMP_KIND(ICMP_TIME_EXCEEDED, 0);
	case ICMP_ERROR_TOO_BIG:
		return ICMP_KIND(ICMP_DEST_UNREACH, ICMP_FRAG_NEEDED);
	case ICMP_ERROR_PORT:
		return ICMP_KIND(ICMP_DEST_UNREACH, ICMP_PORT_UNREACH);
	}
	return ICMP_KIND(ICMP_DEST_UNREACH, ICMP_HOST_UNREACH);
}

static __always_inline __u32 icmp_kind6(__u32 error)
{
	switch (error) {
	case ICMP_ERROR_TTL:
		return ICMP_KIND(ICMP6_TIME_EXCEEDED, 0);
	case ICMP_ERROR_TOO_BIG:
		return ICMP_KIND(ICMP6_PACKET_TOO_BIG, 0);
	case ICMP_ERROR_PORT:
		return ICMP_KIND(ICMP6_DEST_UNREACH, ICMP6_PORT_UNREACH);
	}
	return ICMP_KIND(ICMP6_DEST_UNREACH, ICMP6_ADDR_UNREACH);
}

static __always_inline void icmp_begin(struct icmp_header *icmp, __u32 kind, __u32 mtu)
{
	icmp->type = kind >> 8;
	icmp->code = kind;
	icmp->rest = bpf_htonl(mtu);
}

/* Turns the packet into an error about itself, from packet.to, with packet.mtu, and
 * turns the frame back. One that was `quoted` is as its bytes are: no device will fill
 * in its checksum. */
__noinline int icmp_error_packet4(struct __sk_buff *skb, struct packet *p, __u32 kind, int quoted)
{
	struct icmp_frame4 frame = {};
	struct whole q = {};
	struct iphdr old;
	__u32 sum, length;

	if (!p)
		return -1;
	/* Without a length (BIG TCP) the frame's own counts. */
	length = p->length ? p->length : skb->len - ETH_HEADER;
	q.length = length > ICMP_QUOTE ? ICMP_QUOTE : length;
	if (bpf_skb_load_bytes(skb, ETH_HEADER, &old, sizeof(old)))
		return -1;
	q.headers = (old.ihl & 15) * 4;
	sum_pending(skb, old.protocol, &old.saddr, 8, length, &q);
	if (quoted || old.frag_off & bpf_htons(IP_MF | IP_OFFSET))
		q.pending = 0;
	icmp_part(skb, length, &q);

	icmp_begin(&frame.icmp, kind, p->mtu);
	sum = bpf_csum_diff(0, 0, (__be32 *)&frame.icmp, sizeof(frame.icmp), 0);
	if (icmp_quote(skb, &q, sizeof(frame), sum, &frame.icmp.checksum))
		return -1;
	frame.ip.version = 4;
	frame.ip.ihl = 5;
	frame.ip.tos = 0xc0; /* internetwork control (RFC 1812, 4.3.2.5) */
	frame.ip.tot_len = bpf_htons(sizeof(frame) + q.length);
	frame.ip.ttl = 64;
	frame.ip.protocol = IPPROTO_ICMP;
	frame.ip.saddr = address_to4(&p->to);
	frame.ip.daddr = old.saddr;
	frame.ip.check = csum_fold(bpf_csum_diff(0, 0, (__be32 *)&frame.ip, sizeof(frame.ip), 0));
	if (bpf_skb_store_bytes(skb, ETH_HEADER, &frame, sizeof(frame), BPF_F_RECOMPUTE_CSUM))
		return -1;
	return icmp_turn_back(skb);
}

__noinline int icmp_error_packet6(struct __sk_buff *skb, struct packet *p, __u32 kind, int quoted)
{
	struct icmp_frame6 frame = {};
	struct whole q = {};
	__u32 sum, length;

	if (!p)
		return -1;
	length = p->length ? p->length : skb->len - ETH_HEADER;
	q.length = length > ICMP6_QUOTE ? ICMP6_QUOTE : length;
	q.headers = p->transport - ETH_HEADER;
	frame.ip.saddr = *(struct in6_addr *)&p->flow.dst;
	frame.ip.daddr = *(struct in6_addr *)&p->flow.src;
	sum_pending(skb, p->flow.protocol, (__be32 *)&frame.ip.saddr, 32, length, &q);
	/* Between the headers there may be a fragment's. */
	if (quoted || q.headers != sizeof(frame.ip))
		q.pending = 0;
	icmp_part(skb, length, &q);

	frame.ip.saddr = *(struct in6_addr *)&p->to;
	icmp_begin(&frame.icmp, kind, p->mtu);
	frame.ip.version = 6;
	frame.ip.payload_len = bpf_htons(sizeof(frame.icmp) + q.length);
	frame.ip.nexthdr = IPPROTO_ICMPV6;
	frame.ip.hop_limit = 64;
	/* The pseudo header (RFC 8200, 8.1), the message's own, the quote. */
	sum = bpf_htons(IPPROTO_ICMPV6) + frame.ip.payload_len;
	sum = bpf_csum_diff(0, 0, (__be32 *)&frame.ip.saddr, 32, sum);
	sum = bpf_csum_diff(0, 0, (__be32 *)&frame.icmp, sizeof(frame.icmp), sum);
	if (icmp_quote(skb, &q, sizeof(frame), sum, &frame.icmp.checksum))
		return -1;
	if (bpf_skb_store_bytes(skb, ETH_HEADER, &frame, sizeof(frame), BPF_F_RECOMPUTE_CSUM))
		return -1;
	return icmp_turn_back(skb);
}

/* One error a second for each sender, after six at once (net.ipv4.icmp_ratelimit
 * and inet_peer_xrlim_allow); path MTU discovery is not limited. */
#define ICMP_INTERVAL NSEC_PER_SEC
#define ICMP_BURST (6 * ICMP_INTERVAL)

static __noinline int icmp_allowed(const union address *sender)
{
	struct allowance fresh = { .saved = ICMP_BURST - ICMP_INTERVAL }, *a;
	__u64 now = now_coarse_ns(), saved;
	union address key = *sender;

	a = bpf_map_lookup_elem(&allowances, &key);
	if (!a) {
		fresh.last = now;
		(void)map_update(allowances, &key, &fresh, BPF_ANY);
		return 1;
	}
	saved = a->saved + (now - a->last);
	if (saved > ICMP_BURST)
		saved = ICMP_BURST;
	a->last = now;
	a->saved = saved < ICMP_INTERVAL ? saved : saved - ICMP_INTERVAL;
	return saved >= ICMP_INTERVAL;
}

/* BPF_FIB_LOOKUP_SRC of linux/bpf.h, since Linux 6.7. */
#define FIB_LOOKUP_SOURCE (1U << 4)

/* Sets packet.to to the address that an error is sent from. Clients get it from the address
 * that they sent to; a server from the director's own address that the kernel would send
 * from to it, or before Linux 6.7, which does not say that, from the service's. */
static __noinline void icmp_source(struct __sk_buff *skb, struct packet *p)
{
	struct bpf_fib_lookup fib = {
		.family = p->flow.family, .ifindex = p->ifindex, .tot_len = 1, /* not the skb's */
	};
	long rc;

	if (!p->from_server) {
		p->to = p->flow.dst;
		return;
	}
	if (fib.family == AF_INET)
		fib.ipv4_dst = address_to4(&p->flow.src);
	else
		__builtin_memcpy(fib.ipv6_dst, &p->flow.src, sizeof(fib.ipv6_dst));
	rc = bpf_fib_lookup(skb, &fib, sizeof(fib), FIB_LOOKUP_SOURCE);
	if (rc != BPF_FIB_LKUP_RET_SUCCESS && rc != BPF_FIB_LKUP_RET_NO_NEIGH)
		return;
	if (fib.family == AF_INET && fib.ipv4_src)
		address_from4(&p->to, fib.ipv4_src);
	else if (fib.family == AF_INET6)
		__builtin_memcpy(&p->to, fib.ipv6_src, sizeof(p->to));
}

/* Sends the ICMP error for a refused packet; the verdict. */
__noinline int icmp_error(struct __sk_buff *skb, struct packet *p)
{
	union address to;
	int rc;

	if (!p)
		return VERDICT_DROP;
	/* None about an ICMP message that may be an error itself, and none about
	 * a part of a packet (RFC 1122, 3.2.2), but that it is too big for IPv6. */
	if (is_icmp(p) || (p->part == LATER_PART &&
			   (p->flow.family == AF_INET || p->error != ICMP_ERROR_TOO_BIG)))
		return drop(p, p->reason);
	if (p->error != ICMP_ERROR_TOO_BIG && !icmp_allowed(&p->flow.src))
		return drop(p, REASON_DROP_RATE_LIMIT);
	turn_aside(p, p->reason);
	to = p->to;
	icmp_source(skb, p);
	if (p->flow.family == AF_INET)
		rc = icmp_error_packet4(skb, p, icmp_kind4(p->error), 0);
	else
		rc = icmp_error_packet6(skb, p, icmp_kind6(p->error), 0);
	p->to = to; /* tracers report it */
	if (rc)
		return drop(p, REASON_DROP_REWRITE);
	return bpf_redirect(skb->ingress_ifindex, 0);
}

#endif
