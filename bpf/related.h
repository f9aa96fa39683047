/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ICMP errors about packets of balanced connections: translated in either
 * direction, the quoted packet included, so that path MTU discovery works and
 * errors arrive (ip_vs_in_icmp, ip_vs_out_icmp, ip_vs_nat_icmp; RFC 5508, 4).
 */
#ifndef IMBANG_RELATED_H
#define IMBANG_RELATED_H

#include "conn_entry.h"
#include "conn_packet.h"
#include "forward/deliver.h"
#include "icmp.h"
#include "reply_side.h"

#define ICMP_SOURCE_QUENCH 4
#define ICMP6_INFORMATIONAL 0x80
#define QUOTED_LEAST 8 /* bytes of the transport header */

/* The packet that an error quotes, as its sender had sent it. */
struct quoted {
	struct flow flow;
	__u32 ip;        /* offset of its IP header in the frame */
	__u32 transport; /* of its transport header */
	__u32 length;    /* of the packet, which need not be quoted whole [bytes] */
	__u32 end;       /* of what is quoted, in the frame */
	__u32 part;      /* enum part */
};

static __always_inline int icmp_is_error(__u8 family, __u8 type)
{
	if (family == AF_INET6)
		return !(type & ICMP6_INFORMATIONAL);
	return type == ICMP_DEST_UNREACH || type == ICMP_SOURCE_QUENCH ||
	       type == ICMP_TIME_EXCEEDED;
}

static __always_inline int quoted_ip4(struct __sk_buff *skb, struct quoted *q)
{
	struct iphdr ip;

	if (bpf_skb_load_bytes(skb, q->ip, &ip, sizeof(ip)) || ip.version != 4 || ip.ihl < 5)
		return -1;
	address_from4(&q->flow.src, ip.saddr);
	address_from4(&q->flow.dst, ip.daddr);
	q->flow.protocol = ip.protocol;
	q->transport = q->ip + ip.ihl * 4;
	q->length = bpf_ntohs(ip.tot_len);
	q->part = ip.frag_off & bpf_htons(IP_OFFSET) ? LATER_PART
		  : ip.frag_off & bpf_htons(IP_MF)   ? FIRST_PART
						     : WHOLE;
	return 0;
}

static __always_inline int quoted_ip6(struct __sk_buff *skb, struct quoted *q)
{
	struct extensions e = { .skb = skb, .offset = q->ip + sizeof(struct ipv6hdr) };
	struct ipv6hdr ip;

	if (bpf_skb_load_bytes(skb, q->ip, &ip, sizeof(ip)) || ip.version != 6)
		return -1;
	e.next = ip.nexthdr;
	bpf_loop(MAX_EXTENSIONS, parse_extension, &e, 0);
	if (e.routed)
		return -1;
	__builtin_memcpy(&q->flow.src, &ip.saddr, sizeof(q->flow.src));
	__builtin_memcpy(&q->flow.dst, &ip.daddr, sizeof(q->flow.dst));
	q->flow.protocol = e.next;
	q->transport = e.offset;
	q->length = sizeof(ip) + bpf_ntohs(ip.payload_len);
	q->part = e.part;
	return 0;
}

/* Fills q, whose fields are 0. 0, or an error if the message quotes nothing
 * that could be balanced. */
static __noinline int quoted_parse(struct __sk_buff *skb, const struct packet *p, struct quoted *q)
{
	struct icmp_header icmp;
	__be16 ports[2];

	if (bpf_skb_load_bytes(skb, p->transport, &icmp, sizeof(icmp)) ||
	    !icmp_is_error(p->flow.family, icmp.type))
		return -1;
	q->ip = p->transport + sizeof(icmp);
	q->end = ETH_HEADER + p->length;
	q->flow.family = p->flow.family;
	if (p->flow.family == AF_INET ? quoted_ip4(skb, q) : quoted_ip6(skb, q))
		return -1;
	if (q->part == LATER_PART ||
	    (q->flow.protocol != IPPROTO_TCP && q->flow.protocol != IPPROTO_UDP &&
	     q->flow.protocol != IPPROTO_SCTP))
		return -1;
	/* What is behind the quoted packet is none of it (RFC 4884). */
	if (q->end > q->ip + q->length)
		q->end = q->ip + q->length;
	/* Every error quotes eight bytes of it (RFC 792). */
	if (q->transport + QUOTED_LEAST > q->end)
		return -1;
	if (bpf_skb_load_bytes(skb, q->transport, ports, sizeof(ports)))
		return -1;
	q->flow.sport = ports[0];
	q->flow.dport = ports[1];
	return 0;
}

/* What changes in the quoted packet, in one piece for bpf_csum_diff. */
struct quoted_side {
	union address addr;
	__be16 port;
	__u16 check; /* of its TCP or UDP header */
	__u16 ip_check;
	__u16 pad;
	__u32 crc; /* of SCTP */
};

/* Makes the checksum of the quoted TCP or UDP header follow address and port,
 * if it is quoted. */
static __always_inline int quoted_check(struct __sk_buff *skb, const struct quoted *q,
					struct quoted_side *old, struct quoted_side *new)
{
	int udp = q->flow.protocol == IPPROTO_UDP;
	__u32 at = q->transport +
		   (udp ? offsetof(struct udphdr, check) : offsetof(struct tcphdr, check));
	__u32 diff;

	if (at + sizeof(old->check) > q->end)
		return 0;
	diff = bpf_csum_diff((__be32 *)old, sizeof(*old), (__be32 *)new, sizeof(*new), 0);
	if (bpf_skb_load_bytes(skb, at, &old->check, sizeof(old->check)))
		return -1;
	if (udp && !old->check)
		return 0; /* there is none (RFC 768) */
	new->check = csum_fold((__u16)~old->check + (__u32)(__u16)~csum_fold(diff));
	if (udp && !new->check)
		new->check = 0xffff;
	return bpf_skb_store_bytes(skb, at, &new->check, sizeof(new->check), 0);
}

/* Likewise SCTP's, in which the addresses are not. */
static __always_inline int quoted_crc(struct __sk_buff *skb, const struct quoted *q,
				      struct quoted_side *old, struct quoted_side *new,
				      enum nat_side side)
{
	__u32 at = q->transport + offsetof(struct sctp_header, checksum);

	if (new->port == old->port || q->part != WHOLE || at + sizeof(old->crc) > q->end)
		return 0;
	if (bpf_skb_load_bytes(skb, at, &old->crc, sizeof(old->crc)))
		return -1;
	if (!old->crc)
		return 0; /* still to be filled in */
	new->crc = old->crc ^ sctp_port_change(side == NAT_DESTINATION, old->port, new->port,
					       q->length - (q->transport - q->ip));
	return bpf_skb_store_bytes(skb, at, &new->crc, sizeof(new->crc), 0);
}

/* Replaces one side's address in the quoted IP header. */
static __always_inline int quoted_address(struct __sk_buff *skb, const struct quoted *q,
					  struct quoted_side *old, struct quoted_side *new,
					  enum nat_side side)
{
	__u32 source = side == NAT_SOURCE, check_at = q->ip + offsetof(struct iphdr, check);
	__be32 addr = address_to4(&new->addr);

	if (q->flow.family == AF_INET6)
		return bpf_skb_store_bytes(skb,
					   q->ip + (source ? offsetof(struct ipv6hdr, saddr)
							   : offsetof(struct ipv6hdr, daddr)),
					   &new->addr, sizeof(new->addr), 0);
	if (bpf_skb_load_bytes(skb, check_at, &old->ip_check, sizeof(old->ip_check)))
		return -1;
	new->ip_check = old->ip_check;
	csum_replace4(&new->ip_check, address_to4(&old->addr), addr);
	return bpf_skb_store_bytes(skb, check_at, &new->ip_check, sizeof(new->ip_check), 0) ||
	       bpf_skb_store_bytes(skb,
				   q->ip + (source ? offsetof(struct iphdr, saddr)
						   : offsetof(struct iphdr, daddr)),
				   &addr, sizeof(addr), 0);
}

/*
 * Gives one side of the quoted packet the decided address and port, and tells
 * by how much the sum of the message's bytes grows. The quoted checksums are
 * kept true as far as they are quoted.
 */
static __always_inline int quoted_rewrite(struct __sk_buff *skb, struct packet *p,
					  const struct quoted *q, enum nat_side side, __u32 *sum)
{
	struct quoted_side old = {}, new = {};

	old.addr = side == NAT_SOURCE ? q->flow.src : q->flow.dst;
	old.port = side == NAT_SOURCE ? q->flow.sport : q->flow.dport;
	new.addr = p->to;
	new.port = p->port;
	if (q->flow.protocol == IPPROTO_SCTP ? quoted_crc(skb, q, &old, &new, side)
					     : quoted_check(skb, q, &old, &new))
		return -1;
	if (quoted_address(skb, q, &old, &new, side))
		return -1;
	*sum = bpf_csum_diff((__be32 *)&old, sizeof(old), (__be32 *)&new, sizeof(new), 0);
	return bpf_skb_store_bytes(skb, q->transport + (side == NAT_SOURCE ? 0 : sizeof(new.port)),
				   &new.port, sizeof(new.port), 0);
}

/* Translates the error: one side of the message to the decided address, and
 * the other side of what it quotes. */
static __noinline int related_rewrite(struct __sk_buff *skb, struct packet *p,
				      const struct quoted *q, enum nat_side side)
{
	const union address *from = side == NAT_SOURCE ? &p->flow.src : &p->flow.dst;
	__u32 check_at = p->transport + offsetof(struct icmp_header, checksum);
	__u32 sum;
	__u16 check;

	if (quoted_rewrite(skb, p, q, side == NAT_SOURCE ? NAT_DESTINATION : NAT_SOURCE, &sum))
		return -1;
	/* ICMPv6's checksum covers a pseudo header, with the addresses. */
	if (p->flow.family == AF_INET6)
		sum = bpf_csum_diff((__be32 *)from, sizeof(*from), (__be32 *)&p->to, sizeof(p->to),
				    sum);
	if (bpf_skb_load_bytes(skb, check_at, &check, sizeof(check)))
		return -1;
	check = csum_fold((__u16)~check + (__u32)(__u16)~csum_fold(sum));
	if (bpf_skb_store_bytes(skb, check_at, &check, sizeof(check), 0))
		return -1;
	return pull(skb, p->transport) || nat_address(skb, p, side, &p->to);
}

/* Likewise the other way round, with the other end of a hairpin, if it is one. */
static __always_inline int related_hairpin(struct __sk_buff *skb, struct packet *p,
					   const struct quoted *q, enum nat_side side,
					   const struct flow *other)
{
	union address to = p->to;
	__be16 port = p->port;
	int rc;

	barrier_var(other); /* Linux 6.1 must see it compared, not what it depends on */
	if (!other)
		return 0;
	p->to = other->src;
	p->port = other->sport;
	rc = related_rewrite(skb, p, q, side == NAT_SOURCE ? NAT_DESTINATION : NAT_SOURCE);
	p->to = to;
	p->port = port;
	return rc;
}

/* An error about a reply of the director as a server: it ends here. */
static __always_inline int related_up(struct packet *p)
{
	if (address_loopback(&p->to))
		return drop(p, REASON_DROP_TO_LOOPBACK);
	p->local = 1;
	return pass(p, REASON_PASS_LOCAL);
}

/* Sends the message on its way, before it is rewritten: both need much of the
 * stack. */
static __noinline int related_send(struct __sk_buff *skb, struct packet *p, enum nat_side side,
				   const struct flow *other)
{
	const union address *src = side == NAT_SOURCE ? &p->to : other ? &other->src : &p->flow.src;
	const union address *dst = side != NAT_SOURCE ? &p->to : other ? &other->src : &p->flow.dst;
	struct route *route;
	int verdict = route_or_refuse(skb, p, src, dst, 0, &route);

	if (verdict == LOCAL && side == NAT_DESTINATION)
		return related_up(p);
	if (verdict == LOCAL)
		return drop(p, REASON_REFUSED_NO_ROUTE);
	return verdict == ROUTED ? transmit(skb, p, route) : verdict;
}

/* `other` is the source of the flow whose end becomes the other side's: of a
 * hairpin, else 0. */
static __always_inline int related_translate(struct __sk_buff *skb, struct packet *p,
					     const struct quoted *q, enum nat_side side,
					     const struct flow *other)
{
	int verdict = p->local ? VERDICT_PASS : related_send(skb, p, side, other);

	if (verdict != VERDICT_REDIRECT && !p->local)
		return verdict;
	if (related_rewrite(skb, p, q, side) || related_hairpin(skb, p, q, side, other) ||
	    (!p->local && take_hop(skb, p)))
		return drop(p, REASON_DROP_REWRITE);
	return verdict;
}

/* The client's address and port as the server sees them. */
static __always_inline int related_other(const struct flow *client, struct flow *other)
{
	if (!hairpin_replies(client, other))
		return -1;
	other->src = other->dst;
	other->sport = other->dport;
	return 0;
}

/* What counts of the connection that an error is about: there is little room on the
 * stack. */
struct related_conn {
	__u32 server;
	__be16 port;
	__u8 forward;
	__u8 flags;
};

static __always_inline int related_told(struct related_conn *of, const struct conn *seen)
{
	of->server = seen->server;
	of->port = seen->port;
	of->forward = seen->forward;
	of->flags = seen->flags;
	return 1;
}

/* Whether there is a connection whose replies, or whose client's packets, have this
 * flow. */
static __noinline int related_reply(const struct flow *flow, struct flow *client,
				    struct related_conn *of)
{
	struct conn seen = {};

	return reply_conn(flow, client, &seen) && related_told(of, &seen);
}

static __noinline int related_request(const struct flow *flow, struct related_conn *of)
{
	struct conn seen = {};

	return conn_look(flow, &seen) && related_told(of, &seen);
}

/* An error about a packet that went to the client: on to the server. */
static __always_inline int related_in(struct __sk_buff *skb, struct packet *p,
				      const struct quoted *q, const struct flow *client,
				      const struct related_conn *c, struct flow *other)
{
	__u32 server = c->server, hairpin = c->flags & CONN_HAIRPIN;
	struct server *s = server_far(server);

	if (!s)
		return pass(p, REASON_PASS_ICMP);
	if (hairpin && related_other(client, other))
		return pass(p, REASON_PASS_HAIRPIN_ICMP);
	if (s->flags & SERVER_AVAILABLE)
		count_in(p, s->service, server);
	decide_server(p, server, s, c->forward, c->port);
	if (!rewrites_address(p->forward))
		return TO_SERVER;
	if (!hairpin)
		other = 0;
	barrier_var(other); /* Linux 6.1's verifier is to see it tested, not what it came from */
	return related_translate(skb, p, q, NAT_DESTINATION, other);
}

/* An error about a packet that went to the server: on to the client, in the
 * service's name. */
static __always_inline int related_out(struct __sk_buff *skb, struct packet *p,
				       const struct quoted *q, const struct flow *client,
				       const struct related_conn *c)
{
	count_out(p, c->server);
	p->from_server = 1;
	p->server = c->server;
	p->to = client->dst;
	p->port = client->dport;
	return related_translate(skb, p, q, NAT_SOURCE, c->flags & CONN_HAIRPIN ? client : 0);
}

/* An error of the director's own about a packet that it took for a server
 * (handle_response_icmp). A verdict, or UNDECIDED. */
__noinline int related_local(struct __sk_buff *skb, struct packet *p)
{
	struct flow back, client;
	struct quoted q = {};
	struct related_conn of;

	if (!p)
		return VERDICT_DROP;
	if (p->part != WHOLE || quoted_parse(skb, p, &q))
		return UNDECIDED;
	flow_turn(&q.flow, &back);
	if (related_reply(&back, &client, &of))
		return related_out(skb, p, &q, &client, &of);
	if (!related_request(&q.flow, &of) || replies_return(of.forward))
		return UNDECIDED;
	count_out(p, of.server);
	return VERDICT_PASS;
}

/* Returns a verdict, TO_SERVER, REFUSED, or UNDECIDED if it is about no
 * connection. */
__noinline int related(struct __sk_buff *skb, struct packet *p)
{
	struct flow back, client;
	struct quoted q = {};
	struct related_conn of;

	if (!p)
		return VERDICT_DROP;
	if (p->part != WHOLE)
		return pass(p, REASON_PASS_FRAGMENT);
	if (quoted_parse(skb, p, &q))
		return UNDECIDED;
	flow_turn(&q.flow, &back);
	if (related_reply(&back, &client, &of)) {
		if (!from_side_of(skb, p, &back.src, of.server))
			return drop(p, REASON_DROP_REVERSE_PATH);
		return related_out(skb, p, &q, &client, &of);
	}
	if (related_request(&back, &of))
		return related_in(skb, p, &q, &back, &of, &client);
	return UNDECIDED;
}

#endif
