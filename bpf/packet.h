/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A packet, and what the rest of the data plane may ask of one. This is the
 * tc side: an skb that may be a GSO super-packet with its checksum still to
 * be filled in. Then checksums are changed by the kernel's helpers, which know (forward/nat.h).
 */
#ifndef IMBANG_PACKET_H
#define IMBANG_PACKET_H

#include "types.h"

/* Continue with the next program of the hook, then with the stack. The value
 * is the same for tcx and for clsact's classifiers. */
#define VERDICT_PASS (-1)
#define VERDICT_DROP 2
#define VERDICT_REDIRECT 7

#define ETH_HEADER 14

#define IP_PLAIN 0x45 /* version 4, no options */

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
	__u32 checksum; /* CRC32c, lowest byte first */
	/* the first chunk */
	struct sctp_chunk {
		__u8 type;
		__u8 flags;
		__be16 length; /* [bytes], with this header, without padding */
	} chunk;
};

/* Chunk types (RFC 9260, 3.2). */
#define CHUNK_INIT 1
#define CHUNK_INIT_ACK 2
#define CHUNK_ABORT 6
#define CHUNK_SHUTDOWN 7
#define CHUNK_SHUTDOWN_ACK 8
#define CHUNK_ERROR 9
#define CHUNK_COOKIE_ECHO 10
#define CHUNK_COOKIE_ACK 11
#define CHUNK_SHUTDOWN_COMPLETE 14

enum part {
	WHOLE, /* a whole packet */
	FIRST_PART,
	LATER_PART, /* without the transport header */
};

/* Whether the server is to take the director for the client. */
enum hairpin {
	HAIRPIN_NONE,
	HAIRPIN,
};

/* Of what a packet that would open a connection found none left. */
enum full {
	FULL_NONE,
	FULL_TABLE,  /* entries of the connection table */
	FULL_CALLS,  /* numbers of calls */
	FULL_LAPSED, /* the flow has an entry: perhaps one whose time is over */
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
	__u8 chunk;    /* of SCTP: the type that counts */
	/* the decision */
	__u8 forward;  /* enum forward, towards the server */
	__u8 outdated; /* a connection that is not to be used was found */
	__be16 port;   /* of the server, or towards the client of the service */
	union {
		union address to; /* likewise */
		/* before the decision: what was found, and what an earlier attempt leaves */
		struct {
			__u8 full;   /* enum full: what there was no room in */
			__u8 again;  /* there was one */
			__u8 lapsed; /* its flow has an entry whose time is over */
			__u8 reuses; /* its entry is still an outdated connection's */
			/* The number of the call whose template the new one holds; 0: none. */
			__u32 call;
			/* The index of the template that it made; 0: none. */
			__u32 template;
			/* The index of the entry that is reserved for it; 0: none. */
			__u32 entry;
		} inherited;
	};
	__u32 server; /* id, or NO_SERVER */
	union {
		__u16 mtu;   /* told by an error, of */
		__u16 route; /* the slot of the route that was found */
	};
	union {
		__u16 kind;    /* ICMP_KIND of an error that is told on */
		__u16 packets; /* TO_SERVER, while backups are told: the client's so far */
	};
	__u8 error; /* enum icmp_error */
	/* what there is to tell */
	__u8 news;        /* enum news */
	__u8 reason;      /* enum reason, of NEWS_ASIDE or REFUSED */
	__u8 was;         /* enum conn_state, before a NEWS_STATE */
	__u8 state;       /* and after */
	__u8 from_server; /* a reply */
	__u8 peek;        /* no packet but a question: nothing may come of it */
	__u8 hairpin;     /* enum hairpin */
	__u8 cut;         /* into fragments, when it is rewritten (struct cutting) */
	__u8 local;       /* it begins or ends at the director: no route, no hop */
	__u8 ahead;       /* of its skb, which there may be none of */
	__u8 direction;   /* enum direction, on the fast path */
};

/* What can be told by ICMP, in either family. */
enum icmp_error {
	ICMP_ERROR_TTL,
	ICMP_ERROR_TOO_BIG,
	ICMP_ERROR_HOST,
	ICMP_ERROR_PORT,
};

/* What the fast path tells the whole one, in skb->cb[0]. */
enum found {
	EXPECT_REPLIES = 0x1, /* servers are where the packet came in */
	NOTHING_FOUND = 0x2,  /* it is of no connection; or a reply, of clients' device */
};

/* Decisions that are no verdicts yet. */
enum decision {
	TO_SERVER = -3, /* packet.server, forward, to, port */
	TO_CLIENT = -4, /* packet.to, port: the service's */
	REFUSED = -5,   /* packet.reason, error, mtu: answered by ICMP */
	UNDECIDED = -6,
	TOLD_ON = -7, /* an error about a tunnel: packet.kind, mtu */
	UNKNOWN = -8, /* UNDECIDED, and of no known connection */
	RESET = -9,   /* answered by a TCP reset, packet.reason */
	HANDED = -10, /* sent to the peer that may have its connection */
};

/* To be answered by an error, once everything else is done: that takes room
 * on the stack. */
static __always_inline int refuse(struct packet *p, enum icmp_error error, __u16 mtu,
				  enum reason reason)
{
	p->error = error;
	p->mtu = mtu;
	p->reason = reason;
	return REFUSED;
}

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
