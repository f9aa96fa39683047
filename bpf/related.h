/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ICMP errors about packets of balanced connections: translated in either
 * direction, the quoted packet included, so that path MTU discovery works and
 * errors arrive (ip_vs_in_icmp, ip_vs_out_icmp, ip_vs_nat_icmp; RFC 5508, 4).
 */
#ifndef IMBANG_RELATED_H
#define IMBANG_RELATED_H

#include "conn.h"
#include "forward/deliver.h"
#include "icmp.h"

#define ICMP_SOURCE_QUENCH 4
#define ICMP6_INFORMATIONAL 0x80

/* The packet that an error quotes, as its sender had sent it. */
struct quoted {
	struct flow flow;
	__u32 ip;        /* offset of its IP header in the frame */
	__u32 transport; /* of its transport header */
};

static __always_inline int icmp_is_error(__u8 family, __u8 type)
{
	if (family == AF_INET6)
		return !(type & ICMP6_INFORMATIONAL);
	return type == ICMP_DEST_UNREACH || type == ICMP_SOURCE_QUENCH ||
	       type == ICMP_TIME_EXCEEDED;
}

/* 0, or an error if it quotes nothing that could be balanced. */
static __always_inline int quoted_parse(struct __sk_buff *skb, const struct packet *p,
					struct quoted *q)
{
	struct icmp_header icmp;
	__be16 ports[2];

	if (bpf_skb_load_bytes(skb, p->transport, &icmp, sizeof(icmp)) ||
	    !icmp_is_error(p->flow.family, icmp.type))
		return -1;
	q->ip = p->transport + sizeof(icmp);
	if (p->flow.family == AF_INET) {
		struct iphdr ip;

		if (bpf_skb_load_bytes(skb, q->ip, &ip, sizeof(ip)) || ip.version != 4 ||
		    ip.ihl < 5 || ip.frag_off & bpf_htons(IP_OFFSET))
			return -1;
		address_from4(&q->flow.src, ip.saddr);
		address_from4(&q->flow.dst, ip.daddr);
		q->flow.protocol = ip.protocol;
		q->transport = q->ip + ip.ihl * 4;
	} else {
		struct ipv6hdr ip;

		if (bpf_skb_load_bytes(skb, q->ip, &ip, sizeof(ip)) || ip.version != 6)
			return -1;
		__builtin_memcpy(&q->flow.src, &ip.saddr, sizeof(q->flow.src));
		__builtin_memcpy(&q->flow.dst, &ip.daddr, sizeof(q->flow.dst));
		q->flow.protocol = ip.nexthdr;
		q->transport = q->ip + sizeof(ip);
	}
	if (q->flow.protocol != IPPROTO_TCP && q->flow.protocol != IPPROTO_UDP &&
	    q->flow.protocol != IPPROTO_SCTP)
		return -1;
	/* Every error quotes eight bytes of it (RFC 792). */
	if (bpf_skb_load_bytes(skb, q->transport, ports, sizeof(ports)))
		return -1;
	q->flow.sport = ports[0];
	q->flow.dport = ports[1];
	q->flow.family = p->flow.family;
	q->flow.template = 0;
	q->flow.pad = 0;
	return 0;
}

/* The flow of the answers to a packet. */
static __always_inline void flow_turn(const struct flow *flow, struct flow *back)
{
	back->src = flow->dst;
	back->dst = flow->src;
	back->sport = flow->dport;
	back->dport = flow->sport;
	back->protocol = flow->protocol;
	back->template = 0;
	back->family = flow->family;
	back->pad = 0;
}

/* What changes in the quoted packet, in one piece for bpf_csum_diff. */
struct quoted_side {
	union address addr;
	__be16 port;
	__u16 check; /* of its TCP or UDP header */
	__u16 ip_check;
	__u16 pad;
};

/*
 * Gives one side of the quoted packet the decided address and port, and adds
 * by how much the sum of the message's bytes grows. The quoted checksums are
 * kept true as far as they are quoted.
 */
static __always_inline int quoted_rewrite(struct __sk_buff *skb, struct packet *p,
					  const struct quoted *q, enum nat_side side, __u32 *sum)
{
	struct quoted_side old = {}, new = {};
	__u32 check_at =
		q->transport + (q->flow.protocol == IPPROTO_TCP ? offsetof(struct tcphdr, check)
								: offsetof(struct udphdr, check));
	__u32 port_at = q->transport + (side == NAT_SOURCE ? 0 : sizeof(new.port));
	__u32 ip_check_at = q->ip + offsetof(struct iphdr, check);
	__u32 diff;
	int rc;

	old.addr = side == NAT_SOURCE ? q->flow.src : q->flow.dst;
	old.port = side == NAT_SOURCE ? q->flow.sport : q->flow.dport;
	new.addr = p->to;
	new.port = p->port;
	diff = bpf_csum_diff((__be32 *)&old, sizeof(old), (__be32 *)&new, sizeof(new), 0);
	if (q->flow.protocol != IPPROTO_SCTP &&
	    !bpf_skb_load_bytes(skb, check_at, &old.check, sizeof(old.check)) &&
	    (old.check || q->flow.protocol == IPPROTO_TCP)) {
		new.check = csum_fold((__u16)~old.check + (__u32)(__u16)~csum_fold(diff));
		if (bpf_skb_store_bytes(skb, check_at, &new.check, sizeof(new.check), 0))
			return -1;
	} else {
		old.check = 0;
	}
	if (bpf_skb_store_bytes(skb, port_at, &new.port, sizeof(new.port), 0))
		return -1;
	if (p->flow.family == AF_INET) {
		__be32 addr = address_to4(&p->to);

		if (bpf_skb_load_bytes(skb, ip_check_at, &old.ip_check, sizeof(old.ip_check)))
			return -1;
		new.ip_check = old.ip_check;
		csum_replace4(&new.ip_check, address_to4(&old.addr), addr);
		rc = bpf_skb_store_bytes(skb, ip_check_at, &new.ip_check, sizeof(new.ip_check), 0);
		rc |= bpf_skb_store_bytes(skb,
					  q->ip + (side == NAT_SOURCE
							   ? offsetof(struct iphdr, saddr)
							   : offsetof(struct iphdr, daddr)),
					  &addr, sizeof(addr), 0);
	} else {
		rc = bpf_skb_store_bytes(skb,
					 q->ip + (side == NAT_SOURCE
							  ? offsetof(struct ipv6hdr, saddr)
							  : offsetof(struct ipv6hdr, daddr)),
					 &new.addr, sizeof(new.addr), 0);
	}
	*sum = bpf_csum_diff((__be32 *)&old, sizeof(old), (__be32 *)&new, sizeof(new), *sum);
	return rc;
}

/* Translates the error: the quoted packet's side `inner`, the message's side
 * `outer`, to the decided address and port. */
static __always_inline int related_rewrite(struct __sk_buff *skb, struct packet *p,
					   const struct quoted *q, enum nat_side inner,
					   enum nat_side outer)
{
	const union address *from = outer == NAT_SOURCE ? &p->flow.src : &p->flow.dst;
	__u32 check_at = p->transport + offsetof(struct icmp_header, checksum);
	__u32 sum = 0;
	__u16 check;

	if (quoted_rewrite(skb, p, q, inner, &sum))
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
	if (pull(skb, p->transport) || nat_address(skb, p, outer, &p->to))
		return -1;
	return take_hop(skb, p);
}

/* An error is not answered by another one. */
static __always_inline int related_send(struct __sk_buff *skb, struct packet *p,
					const struct quoted *q, enum nat_side inner,
					enum nat_side outer)
{
	const union address *src = outer == NAT_SOURCE ? &p->to : &p->flow.src;
	const union address *dst = outer == NAT_SOURCE ? &p->flow.dst : &p->to;
	struct way way;

	if (p->ttl <= 1)
		return drop(p, REASON_REFUSED_TTL_EXCEEDED);
	if (find_way(skb, p, src, dst, 0, &way) != BPF_FIB_LKUP_RET_SUCCESS)
		return drop(p, REASON_REFUSED_NO_ROUTE);
	if (related_rewrite(skb, p, q, inner, outer))
		return drop(p, REASON_DROP_REWRITE);
	return transmit(skb, p, &way);
}

/* An error about a packet that went to the client: on to the server. */
static __always_inline int related_in(struct __sk_buff *skb, struct packet *p,
				      const struct quoted *q, struct conn *c)
{
	__u32 server = c->server;
	struct server *s = bpf_map_lookup_elem(&servers, &server);

	if (!s)
		return pass(p, REASON_PASS_ICMP);
	if (c->flags & CONN_HAIRPIN)
		return pass(p, REASON_PASS_HAIRPIN_ICMP);
	count_in(p, s->service, server);
	decide_server(p, server, s, c->forward, c->port);
	if (p->forward != FORWARD_MASQ)
		return TO_SERVER;
	return related_send(skb, p, q, NAT_SOURCE, NAT_DESTINATION);
}

/* An error about a packet that went to the server: on to the client, in the
 * service's name. */
static __always_inline int related_out(struct __sk_buff *skb, struct packet *p,
				       const struct quoted *q, const struct flow *client)
{
	struct conn *c = conn_find(client);

	if (!c)
		return pass(p, REASON_PASS_ICMP);
	if (c->flags & CONN_HAIRPIN)
		return pass(p, REASON_PASS_HAIRPIN_ICMP);
	count_out(p, c->server);
	p->from_server = 1;
	p->server = c->server;
	p->to = client->dst;
	p->port = client->dport;
	return related_send(skb, p, q, NAT_DESTINATION, NAT_SOURCE);
}

/* Returns a verdict, or TO_SERVER. */
__noinline int related(struct __sk_buff *skb, struct packet *p)
{
	struct flow back, client;
	struct quoted q;
	struct conn *c;

	if (!p)
		return VERDICT_DROP;
	if (p->part != WHOLE)
		return pass(p, REASON_PASS_FRAGMENT);
	if (quoted_parse(skb, p, &q))
		return pass(p, REASON_PASS_ICMP);
	flow_turn(&q.flow, &back);
	if (reverse_find(&back, &client))
		return related_out(skb, p, &q, &client);
	c = conn_find(&back);
	if (c)
		return related_in(skb, p, &q, c);
	return pass(p, REASON_PASS_ICMP);
}

#endif
