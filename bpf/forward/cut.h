/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Cutting an IPv4 packet that exceeds its route's MTU into fragments (RFC 791,
 * 3.2; ip_do_fragment), when it has become what it is to be. The skb becomes
 * one fragment after the other: copies of it are sent, and the last one leaves
 * as any packet does.
 */
#ifndef IMBANG_FORWARD_CUT_H
#define IMBANG_FORWARD_CUT_H

#include "../sctp.h"
#include "../sum.h"
#include "out.h"

#define CUT_MOST 64 /* fragments of one packet */

#define IP_LONGEST 60 /* header [bytes] */

#define IP_OPTION_END 0
#define IP_OPTION_NOOP 1
#define IP_OPTION_COPIED 0x80 /* bit of the type */

/* What is left to do of a packet. */
struct cut {
	struct __sk_buff *skb;
	union {
		struct iphdr ip;
		__be32 header[16]; /* with options; zero behind them */
	};
	__u32 size;   /* of the header [bytes] */
	__u32 room;   /* for what is behind it */
	__u32 from;   /* how much of that is done */
	__u32 left;   /* and is not */
	__u32 first;  /* offset and flags of the packet itself */
	__u32 device; /* that takes the fragments; 0: they are not sent */
	long failed;
};

/* As a number of bytes, 1 to 1 << bits: Linux 6.1's verifier does not see that
 * what is not 0 is more. */
#define AT_LEAST_1(n, bits)                         \
	({                                          \
		asm volatile("" : "+r"(n));         \
		((n - 1) & ((1U << bits) - 1)) + 1; \
	})

/* Makes the skb the next fragment; 0, or an error. */
static __noinline int cut_next(struct cut *c)
{
	__u32 zero = 0, n = c->left, size = c->size, from = c->from;
	struct cutting *cutting = bpf_map_lookup_elem(&cuttings, &zero);
	__u32 field = c->first + from / 8;

	if (!cutting)
		return -1;
	if (n > c->room) {
		n = c->room & ~7U;
		field |= IP_MF;
	}
	c->ip.tot_len = bpf_htons(size + n);
	c->ip.frag_off = bpf_htons(field);
	c->ip.check = 0;
	c->ip.check = csum_fold(bpf_csum_diff(0, 0, c->header, sizeof(c->header), 0));
	c->from += n;
	c->left -= n;
	if (bpf_skb_change_tail(c->skb, ETH_HEADER + size + n, 0))
		return -1;
	size = AT_LEAST_1(size, 6);
	if (bpf_skb_store_bytes(c->skb, ETH_HEADER, c->header, size, 0))
		return -1;
	n = AT_LEAST_1(n, 14);
	if (from > CUT_LONGEST || n > CUT_LONGEST)
		return -1;
	return bpf_skb_store_bytes(c->skb, ETH_HEADER + c->size, cutting->bytes + from, n, 0);
}

/* One fragment, but for the last one sent. */
static long cut_visit(__u32 i, struct cut *c)
{
	c->failed = cut_next(c);
	if (c->failed || !c->left)
		return 1;
	if (c->device)
		c->failed = bpf_clone_redirect(c->skb, c->device, 0);
	return !!c->failed;
}

/* The options of a header: one for each call. */
struct cut_options {
	struct __sk_buff *skb;
	__u32 at;
	__u32 end;
};

static long cut_option(__u32 i, struct cut_options *o)
{
	__u8 noops[IP_LONGEST - sizeof(struct iphdr)], option[2];
	__u32 n;

	if (o->at >= o->end || bpf_skb_load_bytes(o->skb, o->at, option, sizeof(option)) ||
	    option[0] == IP_OPTION_END)
		return 1;
	if (option[0] == IP_OPTION_NOOP) {
		o->at++;
		return 0;
	}
	n = option[1];
	if (n < sizeof(option) || n > sizeof(noops) || n > o->end - o->at)
		return 1;
	__builtin_memset(noops, IP_OPTION_NOOP, sizeof(noops));
	n = AT_LEAST_1(n, 6);
	if (n > sizeof(noops))
		return 1;
	if (!(option[0] & IP_OPTION_COPIED) && bpf_skb_store_bytes(o->skb, o->at, noops, n, 0))
		return 1;
	o->at += n;
	return 0;
}

/* Reads the header of the packet in the skb. */
static __always_inline int cut_header(struct cut *c)
{
	__u32 size = AT_LEAST_1(c->size, 6);

	return bpf_skb_load_bytes(c->skb, ETH_HEADER, c->header, size);
}

/* All but the first fragment have fewer options (ip_options_fragment). */
static __always_inline int cut_options(struct cut *c)
{
	struct cut_options o = { .skb = c->skb, .at = ETH_HEADER + sizeof(struct iphdr) };

	if (c->size == sizeof(struct iphdr))
		return 0;
	o.end = ETH_HEADER + c->size;
	bpf_loop(IP_LONGEST - sizeof(struct iphdr), cut_option, &o, 0);
	return cut_header(c);
}

/*
 * Fills in a checksum that was left to the hardware, which would do so for
 * each fragment. `transport` is the offset of the header that it is in, and
 * `length` the packet's, as it now is. SCTP's cannot be made here.
 */
static __always_inline int cut_fill(struct __sk_buff *skb, const struct packet *p, __u32 transport,
				    __u32 length)
{
	struct whole w = { .headers = transport - ETH_HEADER }, segment = {};
	__u32 ip = transport - (p->transport - ETH_HEADER), sum = 0, at = transport, crc;
	__be32 ends[2];
	__u16 check;

	if (p->part != WHOLE)
		return 0;
	if (p->flow.protocol == IPPROTO_SCTP)
		return bpf_skb_load_bytes(skb, at + offsetof(struct sctp_header, checksum), &crc,
					  sizeof(crc)) ||
		       !crc;
	if (bpf_skb_load_bytes(skb, ip + offsetof(struct iphdr, saddr), ends, sizeof(ends)))
		return -1;
	sum_pending(skb, p->flow.protocol, ends, sizeof(ends), length, &w);
	if (!w.pending)
		return 0;
	segment.length = length - w.headers;
	if (sum_packet(skb, transport, &segment, &sum))
		return -1;
	check = csum_fold(sum);
	if (!check)
		check = 0xffff;
	at += p->flow.protocol == IPPROTO_TCP ? offsetof(struct tcphdr, check)
					      : offsetof(struct udphdr, check);
	return bpf_skb_store_bytes(skb, at, &check, sizeof(check), 0);
}

/*
 * Makes the kernel forget that a checksum is left to the hardware, and where
 * the transport header is, as far as that keeps it from making the skb short.
 * It does when the place is gone; then the place is made anew. And it drops a
 * sum that the hardware made when the skb becomes longer.
 */
static __always_inline int cut_forget(struct __sk_buff *skb, __u32 transport)
{
	__s32 gone = transport + 2, headers = ETH_HEADER + sizeof(struct iphdr);

	return bpf_skb_change_tail(skb, skb->len + 2, 0) ||
	       bpf_skb_adjust_room(skb, -gone, BPF_ADJ_ROOM_MAC, 0) ||
	       bpf_skb_adjust_room(skb, headers + 2, BPF_ADJ_ROOM_MAC, 0);
}

/* Takes the packet out of the skb; 0, or an error. */
static __noinline int cut_take(struct cut *c, const struct packet *p)
{
	__u32 zero = 0, n, length, transport;
	struct cutting *cutting = bpf_map_lookup_elem(&cuttings, &zero);
	struct __sk_buff *skb = c->skb;

	if (!cutting || bpf_skb_load_bytes(skb, ETH_HEADER, &c->ip, sizeof(c->ip)))
		return -1;
	c->size = c->ip.ihl * 4;
	length = bpf_ntohs(c->ip.tot_len);
	transport = p->transport + (length - p->length);
	if (length <= c->size || cutting->mtu < c->size + 8 || cut_header(c) ||
	    cut_fill(skb, p, transport, length))
		return -1;
	c->first = bpf_ntohs(c->ip.frag_off);
	c->room = cutting->mtu - c->size;
	c->left = length - c->size;
	c->device = cutting->known ? cutting->device : 0;
	n = c->left;
	if (n > CUT_MOST * (c->room & ~7U) || n > CUT_LONGEST)
		return -1;
	n = AT_LEAST_1(n, 14);
	return bpf_skb_load_bytes(skb, ETH_HEADER + c->size, cutting->bytes, n) ||
	       cut_forget(skb, transport);
}

/*
 * A packet that is too big for its route, rewritten and about to be sent: the
 * verdict. While the neighbour is not known, the last fragment goes alone, to
 * make the kernel ask for it.
 */
__noinline int cut(struct __sk_buff *skb, struct packet *p)
{
	struct cut c = { .skb = skb };
	struct cutting *cutting;
	__u32 zero = 0;

	if (!p)
		return VERDICT_DROP;
	if (cut_take(&c, p))
		return drop(p, REASON_DROP_TOO_BIG_NO_DF);
	cut_visit(0, &c);
	if (!c.failed)
		c.failed = cut_options(&c);
	if (!c.failed)
		bpf_loop(CUT_MOST, cut_visit, &c, 0);
	cutting = bpf_map_lookup_elem(&cuttings, &zero);
	if (!cutting || c.failed || c.left)
		return drop(p, REASON_DROP_REWRITE);
	if (!cutting->known)
		turn_aside(p, REASON_DROP_NO_NEIGHBOUR);
	if (cutting->ask)
		return bpf_redirect_neigh(cutting->device, &cutting->next, sizeof(cutting->next),
					  0);
	return bpf_redirect(cutting->device, 0);
}

#endif
