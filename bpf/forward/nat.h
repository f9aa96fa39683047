/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Masquerading (LVS-NAT): the client's packets get the server's address and
 * port, the server's replies those of the virtual service.
 */
#ifndef IMBANG_FORWARD_NAT_H
#define IMBANG_FORWARD_NAT_H

#include "../csum.h"
#include "../packet.h"
#include "../sctp.h"
#include "out.h"

enum nat_side { NAT_SOURCE, NAT_DESTINATION };

/* The checksum of a TCP or UDP header. */
static __always_inline __u32 offset_of_check(const struct packet *p)
{
	return p->transport + (p->flow.protocol == IPPROTO_TCP ? offsetof(struct tcphdr, check)
							       : offsetof(struct udphdr, check));
}

/* Whether the packet shows a checksum that its addresses are in. A later
 * fragment has no transport header, and SCTP leaves them out. */
static __always_inline int check_has_address(const struct packet *p)
{
	return p->part != LATER_PART && p->flow.protocol != IPPROTO_SCTP;
}

/* An UDP checksum of zero means none (RFC 768). */
static __always_inline __u64 check_flags(const struct packet *p)
{
	return p->flow.protocol == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0;
}

/* What a changed address changes in a sum of 16-bit words. */
static __always_inline __u64 address_moved(const struct packet *p, const union address *from,
					   const union address *to)
{
	__u64 moved = (__u64)(__u32)~from->word[3] + to->word[3];

	if (p->flow.family == AF_INET6) {
		moved += (__u64)(__u32)~from->word[0] + to->word[0];
		moved += (__u64)(__u32)~from->word[1] + to->word[1];
		moved += (__u64)(__u32)~from->word[2] + to->word[2];
	}
	return moved;
}

/* A checksum after that (RFC 1624, equation 3). */
static __always_inline __u16 csum_moved(__u16 check, __u64 moved)
{
	return csum_fold(csum_narrow(moved + (__u16)~check));
}

/* Where the transport header of a packet without IP options is. */
static __always_inline __u32 plain_transport_at(const struct packet *p)
{
	return ETH_HEADER +
	       (p->flow.family == AF_INET ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));
}

/* A TCP or UDP header gets another port, and a checksum that is true to it and to the address: 0,
 * or -1 if it is not in the packet's bytes. */
static __always_inline int transport_rewrite(const struct packet *p, void *header, void *end,
					     enum nat_side side, __be16 to, __u64 moved)
{
	struct tcphdr *tcp = header;
	struct udphdr *udp = header;
	__be16 *port = side == NAT_SOURCE ? &udp->source : &udp->dest;

	if (p->flow.protocol == IPPROTO_TCP ? (void *)(tcp + 1) > end : (void *)(udp + 1) > end)
		return -1;
	moved += (__u16) ~*port + to;
	*port = to;
	if (p->flow.protocol == IPPROTO_TCP) {
		tcp->check = csum_moved(tcp->check, moved);
	} else if (udp->check) { /* zero means none (RFC 768) */
		udp->check = csum_moved(udp->check, moved);
		if (!udp->check)
			udp->check = 0xffff;
	}
	return 0;
}

/* Corrects the transport checksum for a changed address, which is in its
 * pseudo header even if the hardware is still to fill it in. */
static __always_inline int nat_check_address(struct __sk_buff *skb, struct packet *p,
					     const union address *from, const union address *to)
{
	__u64 flags = check_flags(p) | BPF_F_PSEUDO_HDR;
	__u32 at = offset_of_check(p);
	__s64 diff;

	if (p->flow.family == AF_INET) {
		if (!check_has_address(p))
			return 0;
		return bpf_l4_csum_replace(skb, at, address_to4(from), address_to4(to),
					   flags | sizeof(__be32));
	}
	diff = bpf_csum_diff((__be32 *)from, sizeof(*from), (__be32 *)to, sizeof(*to), 0);
	if (check_has_address(p) && bpf_l4_csum_replace(skb, at, 0, diff, flags))
		return -1;
	/* If the hardware summed up the packet, that sum is to follow. It does
	 * with IPv4, whose header has a checksum that makes up for the address;
	 * the helper believes that here too. */
	bpf_csum_update(skb, diff);
	return 0;
}

/* Replaces one side's address in the IP header. */
static __always_inline int nat_address(struct __sk_buff *skb, struct packet *p, enum nat_side side,
				       const union address *to)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;

	if (p->flow.family == AF_INET) {
		struct iphdr *ip = data + ETH_HEADER;
		__be32 *addr = side == NAT_SOURCE ? &ip->saddr : &ip->daddr;

		if ((void *)(ip + 1) > end)
			return -1;
		csum_replace4(&ip->check, *addr, address_to4(to));
		*addr = address_to4(to);
	} else {
		struct ipv6hdr *ip = data + ETH_HEADER;

		if ((void *)(ip + 1) > end)
			return -1;
		if (side == NAT_SOURCE)
			__builtin_memcpy(&ip->saddr, to, sizeof(*to));
		else
			__builtin_memcpy(&ip->daddr, to, sizeof(*to));
	}
	return 0;
}

/* Replaces one side's port, and corrects the transport checksum. */
static __always_inline int nat_port(struct __sk_buff *skb, struct packet *p, enum nat_side side,
				    __be16 to)
{
	__be16 from = side == NAT_SOURCE ? p->flow.sport : p->flow.dport;
	void *data, *end;
	__be16 *ports;

	if (to == from)
		return 0;
	/* The ports are not in the pseudo header: another call. */
	if (p->flow.protocol == IPPROTO_SCTP
		    ? sctp_check_port(skb, p, side == NAT_DESTINATION, from, to)
		    : bpf_l4_csum_replace(skb, offset_of_check(p), from, to,
					  check_flags(p) | sizeof(to)))
		return -1;
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	ports = data + (p->transport & MAX_TRANSPORT);
	if ((void *)(ports + 4) > end)
		return -1;
	ports[side == NAT_SOURCE ? 0 : 1] = to;
	/* Where no checksum makes up for it, the hardware's sum follows. */
	if (p->flow.protocol == IPPROTO_SCTP || (p->flow.protocol == IPPROTO_UDP && !ports[3]))
		bpf_csum_update(skb, (__u32)(__u16)~from + to);
	return 0;
}

/* The sum of the pseudo header of a packet whose header is in its bytes; 0 if it is not. */
static __always_inline __u16 pseudo_now(const struct packet *p, void *data, void *end)
{
	struct ipv6hdr *ip6 = data + ETH_HEADER;
	struct iphdr *ip = data + ETH_HEADER;
	const __u32 *word = (const __u32 *)&ip6->saddr;
	__u64 sum = bpf_htons(p->flow.protocol);

	sum += bpf_htons(p->length - (plain_transport_at(p) - ETH_HEADER));
	if (p->flow.family == AF_INET) {
		if ((void *)(ip + 1) > end)
			return 0;
		sum += (__u64)ip->saddr + ip->daddr;
	} else {
		if ((void *)(ip6 + 1) > end)
			return 0;
#pragma unroll
		for (__u32 i = 0; i < 8; i++)
			sum += word[i];
	}
	return ~csum_fold(csum_narrow(sum));
}

/*
 * Rewrites one side of a plain packet in its bytes, which costs less than the helpers: 1, or 0 if
 * they are needed. They know whether the hardware is still to fill in the checksum. It then is the
 * sum of the pseudo header; one in 65536 others looks the same.
 */
static __always_inline int nat_in_place(struct __sk_buff *skb, struct packet *p, enum nat_side side,
					const union address *from, const union address *to,
					__be16 port)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	void *header = data + plain_transport_at(p);
	struct tcphdr *tcp = header;
	struct udphdr *udp = header;
	__be16 was = side == NAT_SOURCE ? p->flow.sport : p->flow.dport;
	__u64 rest = 0; /* of the sum of the whole packet, for which nothing makes up */
	__u16 check;

	if (p->part != WHOLE || skb->gso_size || p->transport != plain_transport_at(p))
		return 0;
	if (p->flow.protocol == IPPROTO_TCP) {
		if ((void *)(tcp + 1) > end)
			return 0;
		check = tcp->check;
	} else {
		if (p->flow.protocol != IPPROTO_UDP || (void *)(udp + 1) > end)
			return 0;
		check = udp->check;
	}
	if (check == pseudo_now(p, data, end) ||
	    transport_rewrite(p, header, end, side, port, address_moved(p, from, to)) ||
	    nat_address(skb, p, side, to))
		return 0;
	/* Two checksums make up for an address of IPv4, one for one of IPv6. */
	if (p->flow.protocol == IPPROTO_UDP && !check) {
		rest = (__u16)~was + port;
		if (p->flow.family == AF_INET6)
			rest += address_moved(p, from, to);
	} else if (p->flow.family == AF_INET) {
		rest = address_moved(p, to, from);
	}
	if (rest)
		bpf_csum_update(skb, csum_narrow(rest));
	return 1;
}

/* One side gets another address and port. */
static __always_inline int nat_side(struct __sk_buff *skb, struct packet *p, enum nat_side side,
				    const union address *to, __be16 port)
{
	const union address *from = side == NAT_SOURCE ? &p->flow.src : &p->flow.dst;

	if (nat_in_place(skb, p, side, from, to, port))
		return 0;
	/* A later fragment has no transport header. */
	if ((p->part != LATER_PART && nat_port(skb, p, side, port)) ||
	    nat_check_address(skb, p, from, to))
		return -1;
	return nat_address(skb, p, side, to);
}

/* Likewise, in a frame of its own. */
static __noinline int nat_side_far(struct __sk_buff *skb, struct packet *p, enum nat_side side,
				   const union address *to, __be16 port)
{
	return nat_side(skb, p, side, to, port);
}

/* SCTP's checksum depends on a port by how many bytes follow: the first
 * fragment does not say. SCTP itself cuts up what is too long (RFC 9260, 6.9),
 * so that there are few. */
static __always_inline int sctp_hides_length(const struct packet *p, enum nat_side side, __be16 to)
{
	return p->part == FIRST_PART && p->flow.protocol == IPPROTO_SCTP &&
	       to != (side == NAT_SOURCE ? p->flow.sport : p->flow.dport);
}

/* One side of a packet that ends or begins at the director: the stack has the
 * way. A verdict. */
static __noinline int nat_local(struct __sk_buff *skb, struct packet *p, enum nat_side side)
{
	if (sctp_hides_length(p, side, p->port))
		return drop(p, REASON_DROP_SCTP_FRAGMENT);
	if (nat_side_far(skb, p, side, &p->to, p->port))
		return drop(p, REASON_DROP_REWRITE);
	return VERDICT_PASS;
}

/* A client's packet to a server that is the director. */
static __always_inline int nat_up(struct __sk_buff *skb, struct packet *p)
{
	if (address_loopback(&p->to))
		return drop(p, REASON_DROP_TO_LOOPBACK);
	turn_aside(p, REASON_PASS_LOCAL);
	return nat_local(skb, p, NAT_DESTINATION);
}

/* One side gets the address and port that were decided, and the packet leaves
 * one hop further. */
static __always_inline int nat_send(struct __sk_buff *skb, struct packet *p, enum nat_side side,
				    struct route *route)
{
	if (nat_side(skb, p, side, &p->to, p->port))
		return drop(p, REASON_DROP_REWRITE);
	return send_on(skb, p, route);
}

/* Likewise, by the route that the routing table has. */
static __always_inline int nat(struct __sk_buff *skb, struct packet *p, enum nat_side side)
{
	const union address *src = side == NAT_SOURCE ? &p->to : &p->flow.src;
	const union address *dst = side == NAT_SOURCE ? &p->flow.dst : &p->to;
	struct route *route;
	int verdict = route_or_refuse(skb, p, src, dst, 0, &route);

	STAGE(ROUTE);
	if (verdict == LOCAL && side == NAT_DESTINATION)
		return nat_up(skb, p);
	if (verdict == LOCAL)
		return refuse(p, ICMP_ERROR_HOST, 0, REASON_REFUSED_NO_ROUTE);
	if (verdict != ROUTED)
		return verdict;
	if (sctp_hides_length(p, side, p->port))
		return drop(p, REASON_DROP_SCTP_FRAGMENT);
	return nat_send(skb, p, side, route);
}

/* A client's packet, to the server. A verdict, or REFUSED. */
__noinline int nat_in(struct __sk_buff *skb, struct packet *p)
{
	return p ? nat(skb, p, NAT_DESTINATION) : VERDICT_DROP;
}

/* A server's, to the client. */
__noinline int nat_out(struct __sk_buff *skb, struct packet *p)
{
	return p ? nat(skb, p, NAT_SOURCE) : VERDICT_DROP;
}

#endif
