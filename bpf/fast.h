/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The fast path: a plain packet of a connection by masquerading or direct routing
 * that has a server and a way to it. Whatever is not so, or not certain, is left to the whole
 * path, which begins anew; so nothing is changed or counted here before the
 * packet is sure to go.
 *
 * The whole path is another program, reached by a tail call: the verifier
 * walks it once and not for each device, and this one stays small.
 */
#ifndef IMBANG_FAST_H
#define IMBANG_FAST_H

#include "forward/dr.h"
#include "forward/nat.h"
#include "forward/xdp.h"

#define IP_PLAIN 0x45 /* version 4, no options */

/* The ports, of a whole TCP or UDP packet whose headers can be read in place. */
static __always_inline int plain_transport(struct packet *p, void *header, void *end)
{
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
	return p->length >= p->headers && ETH_HEADER + p->length <= p->frame;
}

static __always_inline int plain4(struct packet *p, void *data, void *end)
{
	struct iphdr *ip = data + ETH_HEADER;

	if ((void *)(ip + 1) > end || *(__u8 *)ip != IP_PLAIN ||
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
	return plain_transport(p, ip + 1, end);
}

static __always_inline int plain6(struct packet *p, void *data, void *end)
{
	struct ipv6hdr *ip = data + ETH_HEADER;

	/* Super-packets without a length, and jumbograms, are not plain. */
	if ((void *)(ip + 1) > end || ip->version != 6 || !ip->payload_len)
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
	return plain_transport(p, ip + 1, end);
}

/* parse() for the packets that are most. */
static __always_inline int plain(struct __sk_buff *skb, struct packet *p)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;

	if (skb->pkt_type != PACKET_HOST || skb->vlan_present)
		return 0;
	p->frame = skb->len;
	p->ifindex = skb->ingress_ifindex;
	p->mark = skb->mark;
	p->gso_size = skb->gso_size;
	p->segments = skb->gso_segs ? skb->gso_segs : 1;
	if (skb->protocol == bpf_htons(ETH_P_IP))
		return plain4(p, data, end);
	return skb->protocol == bpf_htons(ETH_P_IPV6) && plain6(p, data, end);
}

/* Where the fast path runs. */
enum hook { HOOK_TC, HOOK_XDP };

static __always_inline int settled(const struct conn *c)
{
	return c && (c->forward == FORWARD_MASQ || c->forward == FORWARD_ROUTE) &&
	       !(c->flags & CONN_HAIRPIN);
}

/* Whether there is a way that takes the packet as it is. */
static __always_inline int has_way(void *ctx, struct packet *p, enum nat_side side, struct way *way,
				   const struct settings *set, enum hook hook)
{
	const union address *src = side == NAT_SOURCE ? &p->to : &p->flow.src;
	const union address *dst = side == NAT_SOURCE ? &p->flow.dst : &p->to;

	if (p->ttl <= 1 || find_way(ctx, p, src, dst, 0, way) != BPF_FIB_LKUP_RET_SUCCESS)
		return 0;
	return hook == HOOK_TC || xdp_goes(way, set);
}

/* Sends the packet by the way that it has. */
static __always_inline int send(void *ctx, struct packet *p, enum nat_side side, struct way *way,
				const struct settings *set, enum hook hook)
{
	int verdict;

	if (hook == HOOK_XDP)
		verdict = xdp_send(ctx, p, side, way, set);
	else if (p->forward == FORWARD_ROUTE)
		verdict = direct_send(ctx, p, way);
	else
		verdict = nat_send(ctx, p, side, way);
	if (p->news)
		report(p);
	return verdict;
}

/* A packet of a client's. */
static __always_inline int fast_in(void *ctx, struct packet *p, struct conn *c,
				   const struct settings *set, enum hook hook)
{
	struct server *s = settled(c) ? available_server(c) : 0;
	struct way way;

	if (!s || conn_outdated(p, c, s, set))
		return UNDECIDED;
	p->to = s->addr;
	p->port = c->port;
	if (!has_way(ctx, p, NAT_DESTINATION, &way, set, hook))
		return UNDECIDED;
	conn_in(p, &p->flow, c, s, set);
	return send(ctx, p, NAT_DESTINATION, &way, set, hook);
}

/* A packet of a server's. */
static __always_inline int fast_out(void *ctx, struct packet *p, const struct flow *client,
				    const struct settings *set, enum hook hook)
{
	struct conn *c = conn_find(client);
	struct way way;

	if (!settled(c))
		return UNDECIDED;
	p->to = client->dst;
	p->port = client->dport;
	if (!has_way(ctx, p, NAT_SOURCE, &way, set, hook))
		return UNDECIDED;
	conn_out(p, client, c, set);
	return send(ctx, p, NAT_SOURCE, &way, set, hook);
}

/* A verdict of the hook's; UNDECIDED, or UNKNOWN if there is no connection. */
static __always_inline int fast(void *ctx, struct packet *p, int expect_answers,
				const struct settings *set, enum hook hook)
{
	struct flow client;
	struct conn *c;

	if (expect_answers && reverse_find(&p->flow, &client))
		return fast_out(ctx, p, &client, set, hook);
	c = conn_find(&p->flow);
	if (c)
		return fast_in(ctx, p, c, set, hook);
	if (!expect_answers && reverse_find(&p->flow, &client))
		return fast_out(ctx, p, &client, set, hook);
	return UNKNOWN;
}

#endif
