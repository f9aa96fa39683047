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

/* RFC 9260, 3.1. */
struct sctp_header {
	__be16 source;
	__be16 dest;
	__be32 tag;
	__le32 checksum; /* CRC32c */
	__u8 chunk;      /* type of the first chunk */
};

enum part {
	WHOLE, /* a whole packet */
	FIRST_PART,
	LATER_PART, /* without the transport header */
};

/*
 * A packet and what is decided about it. It goes beside its skb through the
 * data plane, not with it, so that functions which the verifier checks by
 * themselves can take it.
 */
struct packet {
	struct flow flow; /* ports: 0 if there is no such header */
	__u32 mark;       /* firewall mark */
	__u32 id;         /* of a fragmented packet, as it stands there */
	__u32 length;     /* IP packet [bytes]; 0 if it has no length of 16 bits */
	__u32 frame;      /* the whole frame [bytes] */
	__u32 ifindex;    /* where it came in */
	__u16 transport;  /* offset of the transport header in the frame */
	__u16 headers;    /* bytes of IP and transport headers */
	__u16 segments;   /* packets on the wire that a super-packet stands for */
	__u16 gso_size;   /* what each of them carries [bytes]; 0: it is none */
	__u8 ttl;
	__u8 tos;
	__u8 dont_fragment;
	__u8 part;     /* enum part */
	__u8 tcp_bits; /* enum tcp_bit */
	/* the decision */
	__u8 forward;     /* enum forward, towards the server */
	__be16 port;      /* of the server, or towards the client of the service */
	union address to; /* likewise */
	__u32 server;     /* id, or NO_SERVER */
	/* what there is to tell */
	__u8 news;        /* enum news */
	__u8 reason;      /* enum reason, of NEWS_ASIDE */
	__u8 was;         /* enum conn_state, before a NEWS_STATE */
	__u8 state;       /* and after */
	__u8 from_server; /* an answer */
	__u8 peek;        /* no packet but a question: nothing may come of it */
};

/* IP bytes on the wire, without what pads a short frame: each further segment
 * repeats the headers. */
static __always_inline __u64 packet_bytes(const struct packet *p)
{
	__u32 length = p->length ? p->length : p->frame - ETH_HEADER;

	return length + (__u64)(p->segments - 1) * p->headers;
}

/* The longest IP packet on the wire that this one stands for; 0: not known. */
static __always_inline __u16 packet_longest(const struct packet *p)
{
	return p->gso_size ? p->headers + p->gso_size : p->length;
}

#endif
