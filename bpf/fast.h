/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The fast path: a plain packet of a masqueraded connection that has a server
 * and a way to it. Whatever is not so, or not certain, is left to the whole
 * path, which begins anew; so nothing is changed or counted here before the
 * packet is sure to go.
 *
 * The whole path is another program, reached by a tail call: the verifier
 * walks it once and not for each device, and this one stays small.
 */
#ifndef IMBANG_FAST_H
#define IMBANG_FAST_H

#include "challenge.h"
#include "forward/nat.h"

#define IP_PLAIN 0x45 /* version 4, no options */

/* The ports, of a whole TCP or UDP packet whose headers can be read in place. */
static __always_inline int plain_transport(struct __sk_buff *skb, struct packet *p, void *header)
{
	void *end = (void *)(long)skb->data_end;
	struct tcphdr *tcp = header;
	struct udphdr *udp = header;

	if (p->flow.protocol == IPPROTO_TCP) {
		if ((void *)(tcp + 1) > end)
			return 0;
		p->tcp_bits = ((__u8 *)tcp)[13];
		p->headers = p->transport - ETH_HEADER + tcp->doff * 4;
	} else if (p->flow.protocol == IPPROTO_UDP) {
		if ((void *)(udp + 1) > end)
			return 0;
		p->headers = p->transport - ETH_HEADER + sizeof(*udp);
	} else {
		return 0;
	}
	p->flow.sport = udp->source;
	p->flow.dport = udp->dest;
	p->frame = skb->len;
	p->ifindex = skb->ingress_ifindex;
	p->mark = skb->mark;
	p->gso_size = skb->gso_size;
	p->segments = skb->gso_segs ? skb->gso_segs : 1;
	return p->length >= p->headers && ETH_HEADER + p->length <= p->frame;
}

static __always_inline int plain4(struct __sk_buff *skb, struct packet *p)
{
	struct iphdr *ip = (void *)(long)skb->data + ETH_HEADER;

	if ((void *)(ip + 1) > (void *)(long)skb->data_end || *(__u8 *)ip != IP_PLAIN ||
	    ip->frag_off & bpf_htons(IP_MF | IP_OFFSET))
		return 0;
	p->transport = ETH_HEADER + sizeof(*ip);
	p->length = bpf_ntohs(ip->tot_len);
	p->ttl = ip->ttl;
	p->tos = ip->tos;
	p->dont_fragment = !!(ip->frag_off & bpf_htons(IP_DF));
	address_from4(&p->flow.src, ip->saddr);
	address_from4(&p->flow.dst, ip->daddr);
	p->flow.protocol = ip->protocol;
	p->flow.family = AF_INET;
	return plain_transport(skb, p, ip + 1);
}

static __always_inline int plain6(struct __sk_buff *skb, struct packet *p)
{
	struct ipv6hdr *ip = (void *)(long)skb->data + ETH_HEADER;

	/* Super-packets without a length, and jumbograms, are not plain. */
	if ((void *)(ip + 1) > (void *)(long)skb->data_end || ip->version != 6 || !ip->payload_len)
		return 0;
	p->transport = ETH_HEADER + sizeof(*ip);
	p->length = sizeof(*ip) + bpf_ntohs(ip->payload_len);
	p->ttl = ip->hop_limit;
	p->tos = ip->priority << 4 | ip->flow_lbl[0] >> 4;
	p->dont_fragment = 1;
	__builtin_memcpy(&p->flow.src, &ip->saddr, sizeof(p->flow.src));
	__builtin_memcpy(&p->flow.dst, &ip->daddr, sizeof(p->flow.dst));
	p->flow.protocol = ip->nexthdr;
	p->flow.family = AF_INET6;
	if (address_family(&p->flow.src) == AF_INET || address_family(&p->flow.dst) == AF_INET)
		return 0;
	return plain_transport(skb, p, ip + 1);
}

/* parse() for the packets that are most. */
static __always_inline int plain(struct __sk_buff *skb, struct packet *p)
{
	if (skb->pkt_type != PACKET_HOST || skb->vlan_present)
		return 0;
	if (skb->protocol == bpf_htons(ETH_P_IP))
		return plain4(skb, p);
	return skb->protocol == bpf_htons(ETH_P_IPV6) && plain6(skb, p);
}

static __always_inline int settled(const struct conn *c)
{
	return c && c->forward == FORWARD_MASQ && !(c->flags & CONN_HAIRPIN);
}

/* Whether there is a way that takes the packet as it is. */
static __always_inline int has_way(struct __sk_buff *skb, struct packet *p, enum nat_side side,
				   struct way *way)
{
	const union address *src = side == NAT_SOURCE ? &p->to : &p->flow.src;
	const union address *dst = side == NAT_SOURCE ? &p->flow.dst : &p->to;

	return p->ttl > 1 && find_way(skb, p, src, dst, 0, way) == BPF_FIB_LKUP_RET_SUCCESS;
}

static __always_inline int send_nat(struct __sk_buff *skb, struct packet *p, enum nat_side side,
				    struct way *way)
{
	int verdict = nat_send(skb, p, side, way);

	if (p->news)
		report(p);
	return verdict;
}

/* A packet of a client's. */
static __always_inline int fast_in(struct __sk_buff *skb, struct packet *p, struct conn *c,
				   const struct settings *set)
{
	struct server *s = settled(c) ? available_server(c) : 0;
	struct way way;

	if (!s || conn_outdated(p, c, s, set))
		return UNDECIDED;
	p->to = s->addr;
	p->port = c->port;
	if (!has_way(skb, p, NAT_DESTINATION, &way))
		return UNDECIDED;
	conn_in(p, &p->flow, c, s, set);
	return send_nat(skb, p, NAT_DESTINATION, &way);
}

/* A packet of a server's. */
static __always_inline int fast_out(struct __sk_buff *skb, struct packet *p,
				    const struct flow *client, const struct settings *set)
{
	struct conn *c = conn_find(client);
	struct way way;

	if (!settled(c))
		return UNDECIDED;
	p->to = client->dst;
	p->port = client->dport;
	if (!has_way(skb, p, NAT_SOURCE, &way))
		return UNDECIDED;
	conn_out(p, client, c, set);
	return send_nat(skb, p, NAT_SOURCE, &way);
}

/* A verdict, or UNDECIDED. */
static __always_inline int fast(struct __sk_buff *skb, int expect_answers)
{
	struct packet p = { .server = NO_SERVER };
	struct settings *set = get_settings();
	struct flow client;
	struct conn *c;
	int verdict;

	if (!set || !plain(skb, &p) || !in_use(&p, set))
		return UNDECIDED;
	if (challengeable(&p) && (verdict = challenge(skb, &p)) != UNDECIDED) {
		report(&p);
		return verdict;
	}
	if (expect_answers && reverse_find(&p.flow, &client))
		return fast_out(skb, &p, &client, set);
	c = conn_find(&p.flow);
	if (c)
		return fast_in(skb, &p, c, set);
	if (!expect_answers && reverse_find(&p.flow, &client))
		return fast_out(skb, &p, &client, set);
	return UNDECIDED;
}

#endif
