/* SPDX-License-Identifier: GPL-2.0-only */
/* Internet checksums over the bytes of a packet, for headers put before it. */
#ifndef IMBANG_SUM_H
#define IMBANG_SUM_H

#include "csum.h"
#include "kernel.h"
#include "packet.h"

#define SUM_CHUNK 32
#define SUM_CHUNKS (0x10000 / SUM_CHUNK)

struct summing {
	struct __sk_buff *skb;
	__u32 offset;
	__u32 left;
	__u32 sum;
};

static long sum_chunk(__u32 i, struct summing *s)
{
	__be32 chunk[SUM_CHUNK / 4] = {};
	__u32 n = s->left;

	if (!n)
		return 1;
	if (n > SUM_CHUNK)
		n = SUM_CHUNK;
	/* Linux 6.1's verifier does not see that n is not 0. */
	asm volatile("" : "+r"(n));
	n = ((n - 1) & (SUM_CHUNK - 1)) + 1;
	if (bpf_skb_load_bytes(s->skb, s->offset, chunk, n))
		return 1;
	s->sum = bpf_csum_diff(0, 0, chunk, sizeof(chunk), s->sum);
	s->offset += n;
	s->left -= n;
	return 0;
}

/* The sum of the pseudo header of a packet with `length` bytes of transport, folded. */
static __always_inline __u16 sum_pseudo(const struct packet *p, __u32 length)
{
	const __u32 *src = (__u32 *)&p->flow.src, *dst = (__u32 *)&p->flow.dst;
	__u64 sum = (__u64)src[3] + dst[3] + bpf_htons(p->flow.protocol) + bpf_htons(length);

	if (p->flow.family == AF_INET6)
		sum += (__u64)src[0] + src[1] + src[2] + dst[0] + dst[1] + dst[2];
	return ~csum_fold(csum_narrow(sum));
}

/*
 * Whether a TCP or UDP checksum that is the sum of its pseudo header is still to be
 * filled in by the device that sends the packet on. One in 65536 complete checksums is
 * that sum, too: it holds over `length` bytes from `offset`. That of a super-packet is
 * never complete.
 */
static __noinline int sum_unfinished(struct __sk_buff *skb, __u32 offset, __u32 length,
				     __u32 pseudo)
{
	struct summing s = { .skb = skb, .offset = offset, .left = length, .sum = pseudo };

	if (skb->gso_size)
		return 1;
	bpf_loop(SUM_CHUNKS, sum_chunk, &s, 0);
	return s.left || csum_fold(s.sum);
}

/* What a packet's own checksum says of its sum. */
struct whole {
	__u32 length;  /* bytes to sum up, from the IP header on */
	__u32 headers; /* those before the transport header */
	__u16 pseudo;  /* sum of the pseudo header */
	__u8 pending;  /* the transport checksum is still to be filled in */
};

/*
 * Whether the packet's checksum is still to be filled in by the device that
 * sends it on: then the checksum field holds the sum of the pseudo header, and
 * the filled-in packet will add up to the complement of that. So does a complete
 * one that looks the same by chance, but not a part of it. `addresses` are those
 * of the pseudo header, `length` is the packet's.
 */
static __always_inline void sum_pending(struct __sk_buff *skb, __u8 protocol, __be32 *addresses,
					__u32 size, __u32 length, struct whole *w)
{
	__u32 sum = bpf_htons(protocol) + bpf_htons(length - w->headers);
	__u16 check;
	__u32 at = ETH_HEADER + w->headers +
		   (protocol == IPPROTO_TCP ? offsetof(struct tcphdr, check)
					    : offsetof(struct udphdr, check));

	w->pseudo = ~csum_fold(bpf_csum_diff(0, 0, addresses, size, sum));
	w->pending = (protocol == IPPROTO_TCP || protocol == IPPROTO_UDP) &&
		     !bpf_skb_load_bytes(skb, at, &check, sizeof(check)) && check == w->pseudo;
}

/* Sums up the packet at an offset in the frame, on top of *sum. */
static __always_inline int sum_packet(struct __sk_buff *skb, __u32 offset, const struct whole *w,
				      __u32 *sum)
{
	struct summing s = { .skb = skb, .offset = offset, .sum = *sum };

	/* What is pending is known already, and not to be read yet. */
	s.left = w->pending ? w->headers : w->length;
	bpf_loop(SUM_CHUNKS, sum_chunk, &s, 0);
	if (s.left)
		return -1;
	*sum = (s.sum & 0xffff) + (s.sum >> 16);
	if (w->pending)
		*sum += (__u16)~w->pseudo;
	return 0;
}

#endif
