/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What shows that the client of an entry exists. An entry is unproven (CONN_UNPROVEN) until
 *
 * - of TCP: the server has sent something behind its SYN that is no reset, which it does
 *   only when the client has acknowledged that SYN; or, where replies do not return to the
 *   director, a client that has answered a challenge opened the connection (challenge.h);
 * - of SCTP: the server has answered the client's cookie, or sends data;
 * - of UDP: the server has answered two datagrams. One answer is noted (CONN_ASSURED);
 * - of a template: one of its connections was real (CONN_ASSURED);
 * - or the server began the connection.
 *
 * A server's SYN or INIT ACK goes to anybody who asks, and all that a client sends can be
 * sent blindly. Each server counts its unproven entries (LOAD_UNPROVEN): before an entry is
 * inserted, until it is proven or removed, by the CPU that does it. The audit compares.
 */
#ifndef IMBANG_PROOF_H
#define IMBANG_PROOF_H

#include "client.h"
#include "maps.h"
#include "packet.h"
#include "sctp_state.h"
#include "settings.h"

/* Whether a server sends such a packet only to a client that exists, and not to anybody. */
static __always_inline int proves(__u8 state, __u8 tcp_bits, __u8 chunk)
{
	__u32 event;

	if (state < TCP_STATES)
		return !(tcp_bits & (TCP_BIT_SYN | TCP_BIT_RST));
	if (state < SCTP_NONE)
		return 1;
	event = sctp_event(chunk);
	return event == SCTP_DATA || event == SCTP_COOKIE_ACK;
}

static __always_inline int answered_once(const struct conn *c)
{
	return c->state == CONN_UDP && c->in_packets < 2;
}

/* Whether a reply is to be noted of a connection as it was seen (conn_assured). */
static __always_inline int reply_counts(const struct conn *seen, __u8 tcp_bits, __u8 chunk)
{
	return seen->flags & CONN_UNPROVEN && proves(seen->state, tcp_bits, chunk) &&
	       !(seen->flags & CONN_ASSURED && answered_once(seen));
}

/* Notes, under the lock, that an entry is real: 1 if it is proven by that. */
static __always_inline int conn_assured(struct conn *c)
{
	int once = answered_once(c);
	int proven = c->flags & CONN_UNPROVEN && !once;

	if (once || c->state == CONN_TEMPLATE)
		c->flags |= CONN_ASSURED;
	if (proven)
		c->flags &= ~CONN_UNPROVEN;
	return proven;
}

/* A server has n more unproven entries. */
static __always_inline void unproven_counted(__u32 server, __s32 n)
{
	struct load *l = bpf_map_lookup_elem(&loads, &server);

	if (l)
		__sync_fetch_and_add(&l->overloaded, n * LOAD_UNPROVEN);
}

/* The table has n more of such entries, 1 or -1. */
static __noinline void entry_counted(const struct flow *flow, __u32 server, __u8 flags, __s32 n)
{
	struct settings *set = get_settings();

	if (flags & CONN_UNPROVEN)
		unproven_counted(server, n);
	if (set && set->client_share && !flow->template)
		client_counted(&flow->src, n);
}

#endif
