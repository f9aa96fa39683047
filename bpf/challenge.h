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

#include "answer.h"
#include "attack.h"
#include "client.h"
#include "clock.h"
#include "conn.h"
#include "counters.h"
#include "csum.h"
#include "element.h"
#include "parse.h"
#include "service.h"
#include "siphash.h"

/* A cookie is good until the end of the slot after its own [2^32 ns: 4.3 s]. */
#define COOKIE_SLOT_SHIFT 32

/* A proof is good for so long, and for so many connections: of all addresses of its IPv6 /64,
 * which then prove themselves again, as a client does that has used it up. */
#define PROOF_LIFE (600 * NSEC_PER_SEC)
#define PROOF_CREDIT 256

static __always_inline __u32 cookie_slot(void)
{
	return now_coarse_ns() >> COOKIE_SLOT_SHIFT;
}

/* Whether a number acknowledged comes from here. */
static __always_inline int cookie_right(const struct flow *flow, __u32 cookie)
{
	__u32 slot = cookie_slot();

	return cookie == siphash_flow(flow, slot) || cookie == siphash_flow(flow, slot - 1);
}

/* Whether a client has proven itself; `spend` is the connection that it is to
 * open now. */
static __noinline int proven(const union address *client, __u32 spend)
{
	union address key;
	struct proof *proof;

	client_network(client, &key);
	proof = bpf_map_lookup_elem(&proofs, &key);
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
	struct handshake_counts *h = get_handshakes();
	union address key;

	client_network(client, &key);
	if (!map_update(proofs, &key, &proof, BPF_ANY) && h)
		h->proofs++;
}

/* Makes a challenge of a SYN; a verdict. */
static __always_inline int challenge_send(struct __sk_buff *skb, struct packet *p)
{
	struct tcp_answer a = { .ack_seq = bpf_htonl(siphash_flow(&p->flow, cookie_slot())),
				.bits = TCP_BIT_ACK };
	struct tcphdr *tcp = plain_tcp(skb, p);
	struct handshake_counts *h = get_handshakes();
	int verdict;

	if (!tcp)
		return drop(p, REASON_DROP_UNPROVEN);
	verdict = answer_send(skb, p, tcp->check, &a);
	if (verdict < 0)
		return drop(p, REASON_DROP_REWRITE);
	if (h)
		h->challenged++;
	turn_aside(p, REASON_DROP_CHALLENGED);
	return verdict;
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

	if (!p || !challenging(set))
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

	if (!p || p->flow.protocol != IPPROTO_TCP || !challenging(set))
		return 1;
	return proven(&p->flow.src, !p->peek);
}

#endif
