/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What shows that the client of an entry exists. An entry is unproven (CONN_UNPROVEN) until
 *
 * - of TCP: the server has sent something behind its SYN that is no reset, which it does
 *   only when the client has acknowledged that SYN; or, where replies do not return to the
 *   director, a client that has answered a challenge opened the connection (challenge.h);
 * - of SCTP: the server has answered the client's cookie, or sends data;
 * - of UDP: the server has answered when the client had sent two datagrams;
 * - of a template: one of its connections was real;
 * - or the server began the connection.
 *
 * Other replies go to anybody who asks, and all that a client sends can be sent blindly; that
 * there was one is noted (CONN_ASSURED). Replies are those that count (reply_side.h): what does
 * not come from the server's side is dropped first, and proves nothing. Each server counts its
 * unproven entries (LOAD_UNPROVEN): before an entry is inserted, until it is proven or removed, by
 * the CPU that does it. The audit compares.
 */
#ifndef IMBANG_PROOF_H
#define IMBANG_PROOF_H

#include "by_id.h"
#include "client.h"
#include "maps.h"
#include "packet.h"
#include "sctp_state.h"
#include "settings.h"

/* For conn_mark: an entry is real, and proven. */
#define MARK_REAL (CONN_ASSURED | CONN_UNPROVEN)

/* Whether a server sends such a reply only to a client that exists. */
static __always_inline int reply_proves(const struct conn *seen, __u8 tcp_bits, __u8 chunk)
{
	__u32 event;

	if (seen->state < TCP_STATES)
		return !(tcp_bits & (TCP_BIT_SYN | TCP_BIT_RST));
	if (seen->state < SCTP_NONE)
		return seen->in_packets > 1;
	event = sctp_event(chunk);
	return event == SCTP_DATA || event == SCTP_COOKIE_ACK;
}

/* What a reply says of a connection as it was seen: for conn_mark; 0 if that is known. */
static __always_inline __u8 reply_marks(const struct conn *seen, __u8 tcp_bits, __u8 chunk)
{
	if (!(seen->flags & CONN_UNPROVEN))
		return 0;
	if (reply_proves(seen, tcp_bits, chunk))
		return MARK_REAL;
	return ~seen->flags & CONN_ASSURED;
}

/* An entry's flags with such marks. */
static __always_inline __u8 flags_marked(__u8 flags, __u8 marks)
{
	return (flags | marks) & ~(marks & CONN_UNPROVEN);
}

/* A server has n more unproven entries. */
static __always_inline void unproven_counted(__u32 server, __s32 n)
{
	struct load *l = load_far(server);

	if (l)
		__sync_fetch_and_add(&l->overloaded, n * LOAD_UNPROVEN);
}

/* The table has n more of such entries, 1 or -1. */
static __noinline void entry_counted(const struct flow *flow, __u32 server, __u8 flags, __s32 n)
{
	if (flags & CONN_UNPROVEN)
		unproven_counted(server, n);
	if (get_settings()->client_share && !flow->template)
		client_counted(&flow->src, n);
}

#endif
