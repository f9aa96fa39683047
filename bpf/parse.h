/* SPDX-License-Identifier: GPL-2.0-only */
/* From an skb to a struct packet. */
#ifndef IMBANG_PARSE_H
#define IMBANG_PARSE_H

#include "packet.h"

#define PACKET_HOST 0 /* to our hardware address: linux/if_packet.h */

#define IP_DF 0x4000
#define IP_MF 0x2000
#define IP_OFFSET 0x1fff

#define PARSED 0xff /* parse() found a TCP or UDP packet */

/* Makes the first `bytes` of the packet readable in place. */
static __always_inline int pull(struct __sk_buff *skb, __u32 bytes)
{
	if ((void *)(long)skb->data + bytes <= (void *)(long)skb->data_end)
		return 0;
	return bpf_skb_pull_data(skb, bytes);
}

/* Fills p; returns PARSED, or the reason to pass the packet by. */
static __always_inline int parse(struct __sk_buff *skb, struct packet *p)
{
	void *data, *end;
	struct iphdr *ip;
	struct tcphdr *tcp;
	struct udphdr *udp;
	__u32 header, need;

	if (skb->protocol != bpf_htons(ETH_P_IP))
		return REASON_PASS_NOT_IPV4;
	/* This hook comes before the stack throws away what is for other hosts,
	 * and before it sorts tagged frames into their VLANs. */
	if (skb->pkt_type != PACKET_HOST || skb->vlan_present)
		return REASON_PASS_NOT_OURS;
	if (pull(skb, ETH_HEADER + sizeof(*ip)))
		return REASON_PASS_TRUNCATED;
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	ip = data + ETH_HEADER;
	if ((void *)(ip + 1) > end)
		return REASON_PASS_TRUNCATED;
	if (ip->version != 4 || ip->ihl < 5)
		return REASON_PASS_TRUNCATED;
	if (ip->protocol != IPPROTO_TCP && ip->protocol != IPPROTO_UDP)
		return REASON_PASS_PROTOCOL;
	if (ip->frag_off & bpf_htons(IP_MF | IP_OFFSET))
		return REASON_PASS_FRAGMENT;

	header = ip->ihl * 4;
	need = header + (ip->protocol == IPPROTO_TCP ? sizeof(*tcp) : sizeof(*udp));
	p->length = bpf_ntohs(ip->tot_len);
	/* A frame may be padded behind the packet, never shorter than it. A
	 * super-packet beyond 64 KiB (BIG TCP) has no length at all. */
	if (p->length && (p->length < need || ETH_HEADER + p->length > skb->len))
		return REASON_PASS_TRUNCATED;

	__builtin_memset(&p->flow, 0, sizeof(p->flow));
	p->skb = skb;
	p->mark = skb->mark;
	p->transport = ETH_HEADER + header;
	p->ttl = ip->ttl;
	p->tos = ip->tos;
	p->dont_fragment = !!(ip->frag_off & bpf_htons(IP_DF));
	p->tcp_bits = 0;
	p->flow.src = ip->saddr;
	p->flow.dst = ip->daddr;
	p->flow.protocol = ip->protocol;

	if (pull(skb, ETH_HEADER + need))
		return REASON_PASS_TRUNCATED;
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	if (p->flow.protocol == IPPROTO_TCP) {
		tcp = data + ETH_HEADER + (header & 0x3c);
		if ((void *)(tcp + 1) > end)
			return REASON_PASS_TRUNCATED;
		p->flow.sport = tcp->source;
		p->flow.dport = tcp->dest;
		p->tcp_bits = ((__u8 *)tcp)[13];
		p->headers = header + tcp->doff * 4;
	} else {
		udp = data + ETH_HEADER + (header & 0x3c);
		if ((void *)(udp + 1) > end)
			return REASON_PASS_TRUNCATED;
		p->flow.sport = udp->source;
		p->flow.dport = udp->dest;
		p->headers = header + sizeof(*udp);
	}
	return PARSED;
}

#endif
