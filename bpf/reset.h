/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * TCP resets to the sender of a packet (RFC 9293, 3.10.7.1).
 */
#ifndef IMBANG_RESET_H
#define IMBANG_RESET_H

#include "answer.h"
#include "counters.h"
#include "limit.h"

/* The bytes of a segment: data, and one for a FIN. */
static __always_inline __u32 segment_length(const struct packet *p, const struct tcphdr *tcp)
{
	return p->length + ETH_HEADER - p->transport - tcp->doff * 4 + tcp->fin;
}

/* Answers a packet with a reset. It takes what the sender expects next, so that the
 * sender accepts it (RFC 5961, 3.2). A packet with IP options or extension headers is
 * dropped: its sender will send others. Returns a verdict. */
__noinline int reset(struct __sk_buff *skb, struct packet *p)
{
	struct tcp_answer a = { .bits = TCP_BIT_RST };
	struct tcphdr *tcp;
	__u32 header;
	int verdict;

	if (!p)
		return VERDICT_DROP;
	header = p->flow.family == AF_INET ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	if (bpf_skb_pull_data(skb, ETH_HEADER + header + sizeof(struct tcphdr)))
		return drop(p, REASON_DROP_REWRITE);
	tcp = plain_tcp(skb, p);
	if (!tcp || p->transport != ETH_HEADER + header)
		return drop(p, p->reason);
	if (!answer_allowed(p, ANSWER_RESET))
		return VERDICT_DROP;
	if (tcp->ack) {
		a.seq = tcp->ack_seq;
	} else {
		a.ack_seq = bpf_htonl(bpf_ntohl(tcp->seq) + segment_length(p, tcp));
		a.bits |= TCP_BIT_ACK;
	}
	verdict = answer_send(skb, p, tcp->check, &a);
	turn_aside(p, p->reason);
	return verdict < 0 ? VERDICT_DROP : verdict;
}

#endif
