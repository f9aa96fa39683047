/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A packet, and what the rest of the data plane may ask of one. This is the
 * tc side: an skb that may be a GSO super-packet with its checksum still to
 * be filled in, so checksums are changed by the kernel's helpers, which know.
 */
#ifndef IMBANG_PACKET_H
#define IMBANG_PACKET_H

#include "types.h"

/* Continue with the next program of the hook, then with the stack. The value
 * is the same for tcx and for clsact's classifiers. */
#define VERDICT_PASS (-1)
#define VERDICT_DROP 2

#define ETH_HEADER 14

enum tcp_bit {
	TCP_BIT_FIN = 0x01,
	TCP_BIT_SYN = 0x02,
	TCP_BIT_RST = 0x04,
	TCP_BIT_ACK = 0x10,
};

struct packet {
	struct __sk_buff *skb;
	struct flow4 flow;
	__u32 mark;      /* firewall mark */
	__u16 transport; /* offset of the transport header in the frame */
	__u16 headers;   /* bytes of IP and transport headers */
	__u16 length;    /* IP total length; 0 if it has no 16 bits */
	__u8 ttl;
	__u8 tos;
	__u8 dont_fragment;
	__u8 tcp_bits; /* enum tcp_bit */
};

/* Packets on the wire that this one stands for. */
static __always_inline __u32 packet_segments(const struct packet *p)
{
	__u32 n = p->skb->gso_segs;

	return n ? n : 1;
}

/* IP bytes on the wire, without what pads a short frame: each further segment
 * repeats the headers. */
static __always_inline __u64 packet_bytes(const struct packet *p)
{
	__u32 length = p->length ? p->length : p->skb->len - ETH_HEADER;

	return length + (__u64)(packet_segments(p) - 1) * p->headers;
}

/* The longest IP packet on the wire that this one stands for; 0: not known. */
static __always_inline __u16 packet_longest(const struct packet *p)
{
	return p->skb->gso_size ? p->headers + p->skb->gso_size : p->length;
}

#endif
