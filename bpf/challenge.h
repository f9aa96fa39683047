/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Under a SYN flood a client has to show that it is where it says, before it
 * costs anything. Its SYN is answered at once, out of the packet itself, by an
 * ACK of something that it never sent: the number acknowledged is a keyed hash
 * of the flow and the time. A TCP that is opening a connection takes that for
 * a remnant of an old one (RFC 9293, 3.5.2 and 3.10.7.3): it answers with a
 * RST of just that number, goes on, and sends its SYN again. The RST is the
 * proof. Until then nothing is kept here.
 *
 * It is an ACK and not a SYN-ACK: a router with NAT lets that through, and the
 * RST, too, as the remnant that it looks like (nf_conntrack_proto_tcp.c, c).
 * And Linux as a client sends its SYN again at once after it.
 */
#ifndef IMBANG_CHALLENGE_H
#define IMBANG_CHALLENGE_H

#include "attack.h"
#include "clock.h"
#include "conn.h"
#include "counters.h"
#include "csum.h"
#include "parse.h"
#include "service.h"
#include "siphash.h"

/* A cookie is good until the end of the slot after its own [2^32 ns: 4.3 s]. */
#define COOKIE_SLOT_SHIFT 32

/* A proof is good for so long, and for so many connections. */
#define PROOF_LIFE (600 * NSEC_PER_SEC)
#define PROOF_CREDIT 256

struct challenge4 {
	struct iphdr ip;
	struct tcphdr tcp;
};

struct challenge6 {
	struct ipv6hdr ip;
	struct tcphdr tcp;
};

static __always_inline int challenging(const struct settings *set)
{
	struct attack *a;

	if (set->syn_defence != DEFENCE_AUTOMATIC)
		return set->syn_defence == DEFENCE_ALWAYS;
	a = get_attack();
	return a && a->since;
}

static __always_inline __u64 cookie_word(const union address *a, __u32 i)
{
	return (__u64)a->word[i] << 32 | a->word[i + 1];
}

/* What a client is to answer in a slot of time. */
static __noinline __u32 cookie_of(const struct flow *flow, __u32 slot)
{
	__u32 zero = 0;
	struct secret *key = bpf_map_lookup_elem(&secrets, &zero);
	__u64 v0, v1, v2, v3, last;

	if (!key)
		return 0;
	v0 = SIPHASH_0 ^ key->word[0];
	v1 = SIPHASH_1 ^ key->word[1];
	v2 = SIPHASH_2 ^ key->word[0];
	v3 = SIPHASH_3 ^ key->word[1];
	last = (__u64)flow->sport << 48 | (__u64)flow->dport << 32 | slot;
	if (flow->family == AF_INET) {
		SIPHASH_WORD((__u64)address_to4(&flow->src) << 32 | address_to4(&flow->dst));
	} else {
		SIPHASH_WORD(cookie_word(&flow->src, 0));
		SIPHASH_WORD(cookie_word(&flow->src, 2));
		SIPHASH_WORD(cookie_word(&flow->dst, 0));
		SIPHASH_WORD(cookie_word(&flow->dst, 2));
	}
	SIPHASH_WORD(last);
	/* In place of the length: two families, two lengths. */
	last = (__u64)flow->family << 56;
	SIPHASH_WORD(last);
	v2 ^= 0xff;
	SIPHASH_ROUND;
	SIPHASH_ROUND;
	SIPHASH_ROUND;
	SIPHASH_ROUND;
	return v0 ^ v1 ^ v2 ^ v3;
}

static __always_inline __u32 cookie_slot(void)
{
	return now_coarse_ns() >> COOKIE_SLOT_SHIFT;
}

/* Whether a number acknowledged comes from here. */
static __always_inline int cookie_right(const struct flow *flow, __u32 cookie)
{
	__u32 slot = cookie_slot();

	return cookie == cookie_of(flow, slot) || cookie == cookie_of(flow, slot - 1);
}

/* Whether a client has proven itself; `spend` is the connection that it is to
 * open now. */
static __noinline int proven(const union address *client, __u32 spend)
{
	union address key = *client;
	struct proof *proof = bpf_map_lookup_elem(&proofs, &key);

	if (!proof || proof->expires < now_coarse_ns())
		return 0;
	if (spend)
		return __sync_fetch_and_add(&proof->credit, -1) > 0;
	return proof->credit > 0;
}

static __always_inline void prove(const union address *client)
{
	struct proof proof = {
		.expires = now_coarse_ns() + PROOF_LIFE,
		.credit = PROOF_CREDIT,
	};
	union address key = *client;
	struct handshake_counts *h = get_handshakes();

	bpf_map_update_elem(&proofs, &key, &proof, BPF_ANY);
	if (h)
		h->proofs++;
}

/* The TCP header of a plain packet. */
static __always_inline struct tcphdr *plain_tcp(struct __sk_buff *skb, const struct packet *p)
{
	void *header = (void *)(long)skb->data + (p->transport & MAX_TRANSPORT);

	return header + sizeof(struct tcphdr) <= (void *)(long)skb->data_end ? header : 0;
}

/* The sum of the pseudo header of so many bytes of TCP. */
static __always_inline __u32 pseudo_sum(__be32 *addresses, __u32 size, __u32 length)
{
	return bpf_csum_diff(0, 0, addresses, size, bpf_htons(IPPROTO_TCP) + bpf_htons(length));
}

/* The challenge's TCP header. Where the SYN's checksum was still to be filled
 * in, which shows by what stands there (sum_pending), this one's is too. */
static __always_inline void challenge_tcp(const struct packet *p, struct tcphdr *tcp,
					  __be32 *addresses, __u32 size, __u16 check, __u32 cookie)
{
	__u32 length = p->length + ETH_HEADER - p->transport, sum;

	tcp->source = p->flow.dport;
	tcp->dest = p->flow.sport;
	tcp->ack_seq = bpf_htonl(cookie);
	tcp->doff = sizeof(*tcp) / 4;
	tcp->ack = 1;
	sum = pseudo_sum(addresses, size, sizeof(*tcp));
	if (check == (__u16)~csum_fold(pseudo_sum(addresses, size, length)))
		tcp->check = ~csum_fold(sum);
	else
		tcp->check = csum_fold(bpf_csum_diff(0, 0, (__be32 *)tcp, sizeof(*tcp), sum));
}

/* Cuts the packet to a frame's length and puts the frame there. */
static __always_inline int challenge_put(struct __sk_buff *skb, void *frame, __u32 size)
{
	if (skb->len != ETH_HEADER + size && bpf_skb_change_tail(skb, ETH_HEADER + size, 0))
		return -1;
	return bpf_skb_store_bytes(skb, ETH_HEADER, frame, size, BPF_F_RECOMPUTE_CSUM);
}

static __noinline int challenge4(struct __sk_buff *skb, const struct packet *p, __u16 check,
				 __u32 cookie)
{
	struct challenge4 frame = {};

	frame.ip.version = 4;
	frame.ip.ihl = sizeof(frame.ip) / 4;
	frame.ip.tot_len = bpf_htons(sizeof(frame));
	frame.ip.frag_off = bpf_htons(IP_DF);
	frame.ip.ttl = 64;
	frame.ip.protocol = IPPROTO_TCP;
	frame.ip.saddr = address_to4(&p->flow.dst);
	frame.ip.daddr = address_to4(&p->flow.src);
	frame.ip.check = csum_fold(bpf_csum_diff(0, 0, (__be32 *)&frame.ip, sizeof(frame.ip), 0));
	challenge_tcp(p, &frame.tcp, &frame.ip.saddr, 8, check, cookie);
	return challenge_put(skb, &frame, sizeof(frame));
}

static __noinline int challenge6(struct __sk_buff *skb, const struct packet *p, __u16 check,
				 __u32 cookie)
{
	struct challenge6 frame = {};

	frame.ip.version = 6;
	frame.ip.payload_len = bpf_htons(sizeof(frame.tcp));
	frame.ip.nexthdr = IPPROTO_TCP;
	frame.ip.hop_limit = 64;
	__builtin_memcpy(&frame.ip.saddr, &p->flow.dst, sizeof(frame.ip.saddr));
	__builtin_memcpy(&frame.ip.daddr, &p->flow.src, sizeof(frame.ip.daddr));
	challenge_tcp(p, &frame.tcp, (__be32 *)&frame.ip.saddr, 32, check, cookie);
	return challenge_put(skb, &frame, sizeof(frame));
}

/* The frame goes back to who sent it. */
static __always_inline int challenge_turn_back(struct __sk_buff *skb)
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

/* Makes a challenge of a SYN; a verdict. */
static __always_inline int challenge_send(struct __sk_buff *skb, struct packet *p)
{
	struct tcphdr *tcp = plain_tcp(skb, p);
	__u32 cookie = cookie_of(&p->flow, cookie_slot());
	struct handshake_counts *h = get_handshakes();
	int rc;

	if (!tcp)
		return drop(p, REASON_DROP_UNPROVEN);
	if (p->flow.family == AF_INET)
		rc = challenge4(skb, p, tcp->check, cookie);
	else
		rc = challenge6(skb, p, tcp->check, cookie);
	if (rc || challenge_turn_back(skb))
		return drop(p, REASON_DROP_REWRITE);
	if (h)
		h->challenged++;
	turn_aside(p, REASON_DROP_CHALLENGED);
	return bpf_redirect(skb->ingress_ifindex, 0);
}

/* Whether a SYN's client has to prove itself. */
static __noinline int challenge_due(const struct packet *p, const struct settings *set)
{
	struct service_key key;

	return !proven(&p->flow.src, 0) && service_find(p, set, &key) &&
	       address_of_host(&p->flow.src);
}

/* A plain TCP packet while clients are challenged: a verdict, or UNDECIDED if
 * it is to go its way. */
__noinline int challenge(struct __sk_buff *skb, struct packet *p)
{
	struct settings *set = get_settings();
	struct tcphdr *tcp;

	if (!p || !set || !challenging(set))
		return UNDECIDED;
	if (p->tcp_bits & TCP_BIT_RST) {
		tcp = plain_tcp(skb, p);
		if (!tcp || !cookie_right(&p->flow, bpf_ntohl(tcp->seq)))
			return UNDECIDED;
		prove(&p->flow.src);
		return drop(p, REASON_DROP_PROOF);
	}
	if (p->tcp_bits & TCP_BIT_ACK || !challenge_due(p, set))
		return UNDECIDED;
	return challenge_send(skb, p);
}

/* Whether challenge() has anything to say of a plain packet. */
static __always_inline int challengeable(const struct packet *p)
{
	return p->flow.protocol == IPPROTO_TCP && p->tcp_bits & (TCP_BIT_SYN | TCP_BIT_RST);
}

/* Whether a packet that is to open a connection may. A SYN that is not plain
 * comes here unchallenged, and so do packets in the middle of a connection. */
__noinline int admitted(const struct packet *p)
{
	struct settings *set = get_settings();

	if (!p || !set || p->flow.protocol != IPPROTO_TCP || !challenging(set))
		return 1;
	return proven(&p->flow.src, !p->peek);
}

#endif
