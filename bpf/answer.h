/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Answers to TCP packets, made of the packet itself and sent back by the device that it
 * came in by: a header without data, from the address that it was for.
 */
#ifndef IMBANG_ANSWER_H
#define IMBANG_ANSWER_H

#include "csum.h"
#include "packet.h"
#include "parse.h"
#include "sum.h"

struct answer4 {
	struct iphdr ip;
	struct tcphdr tcp;
};

struct answer6 {
	struct ipv6hdr ip;
	struct tcphdr tcp;
};

/* What an answer says, beside the ports. */
struct tcp_answer {
	__be32 seq;
	__be32 ack_seq;
	__u8 bits; /* TCP_BIT_ */
	__u8 pad[3];
};

/* The TCP header of a plain packet; 0 if the packet is shorter than an answer to it. */
static __always_inline struct tcphdr *plain_tcp(struct __sk_buff *skb, const struct packet *p)
{
	void *header = (void *)(long)skb->data + (p->transport & MAX_TRANSPORT);

	if (p->length && ETH_HEADER + p->length < p->transport + sizeof(struct tcphdr))
		return 0; /* a header with an impossible length, and padding */
	return header + sizeof(struct tcphdr) <= (void *)(long)skb->data_end ? header : 0;
}

/* The answer's TCP header; `unfinished`: its checksum is still to be filled in. */
static __always_inline void answer_tcp(const struct packet *p, struct tcphdr *tcp, int unfinished,
				       const struct tcp_answer *a)
{
	__u16 pseudo = sum_pseudo(p, sizeof(*tcp));

	tcp->source = p->flow.dport;
	tcp->dest = p->flow.sport;
	tcp->seq = a->seq;
	tcp->ack_seq = a->ack_seq;
	tcp->doff = sizeof(*tcp) / 4;
	tcp->ack = !!(a->bits & TCP_BIT_ACK);
	tcp->rst = !!(a->bits & TCP_BIT_RST);
	if (unfinished)
		tcp->check = pseudo;
	else
		tcp->check = csum_fold(bpf_csum_diff(0, 0, (__be32 *)tcp, sizeof(*tcp), pseudo));
}

/* Cuts the packet to a frame's length and puts the frame there. */
static __always_inline int answer_put(struct __sk_buff *skb, void *frame, __u32 size)
{
	if (skb->len != ETH_HEADER + size && bpf_skb_change_tail(skb, ETH_HEADER + size, 0))
		return -1;
	return bpf_skb_store_bytes(skb, ETH_HEADER, frame, size, BPF_F_RECOMPUTE_CSUM);
}

static __noinline int answer4(struct __sk_buff *skb, const struct packet *p, int unfinished,
			      const struct tcp_answer *a)
{
	struct answer4 frame = {};

	frame.ip.version = 4;
	frame.ip.ihl = sizeof(frame.ip) / 4;
	frame.ip.tot_len = bpf_htons(sizeof(frame));
	frame.ip.frag_off = bpf_htons(IP_DF);
	frame.ip.ttl = 64;
	frame.ip.protocol = IPPROTO_TCP;
	frame.ip.saddr = address_to4(&p->flow.dst);
	frame.ip.daddr = address_to4(&p->flow.src);
	frame.ip.check = csum_fold(bpf_csum_diff(0, 0, (__be32 *)&frame.ip, sizeof(frame.ip), 0));
	answer_tcp(p, &frame.tcp, unfinished, a);
	return answer_put(skb, &frame, sizeof(frame));
}

static __noinline int answer6(struct __sk_buff *skb, const struct packet *p, int unfinished,
			      const struct tcp_answer *a)
{
	struct answer6 frame = {};

	frame.ip.version = 6;
	frame.ip.payload_len = bpf_htons(sizeof(frame.tcp));
	frame.ip.nexthdr = IPPROTO_TCP;
	frame.ip.hop_limit = 64;
	__builtin_memcpy(&frame.ip.saddr, &p->flow.dst, sizeof(frame.ip.saddr));
	__builtin_memcpy(&frame.ip.daddr, &p->flow.src, sizeof(frame.ip.daddr));
	answer_tcp(p, &frame.tcp, unfinished, a);
	return answer_put(skb, &frame, sizeof(frame));
}

/* The frame goes back to who sent it. */
static __always_inline int answer_turn_back(struct __sk_buff *skb)
{
	struct ethhdr *eth = (void *)(long)skb->data;
	__u8 mac[ETH_ALEN];

	if ((void *)(eth + 1) > (void *)(long)skb->data_end)
		return -1;
	__builtin_memcpy(mac, eth->h_dest, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_source, mac, ETH_ALEN);
	return 0;
}

/* Makes an answer of a plain packet with a checksum, and sends it: a verdict, or negative.
 * If the packet's checksum is still to be filled in, the answer's is too. */
static __always_inline int answer_send(struct __sk_buff *skb, const struct packet *p, __u16 check,
				       const struct tcp_answer *a)
{
	__u32 length = p->length + ETH_HEADER - p->transport;
	__u16 pseudo = sum_pseudo(p, length);
	int rc = check == pseudo && sum_unfinished(skb, p->transport, length, pseudo);

	rc = p->flow.family == AF_INET ? answer4(skb, p, rc, a) : answer6(skb, p, rc, a);
	if (rc || answer_turn_back(skb))
		return -1;
	return bpf_redirect(skb->ingress_ifindex, 0);
}

#endif
