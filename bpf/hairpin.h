/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hairpins: connections of clients in the servers' own network. The server's
 * replies would go to such a client directly, and it would not know them. So
 * the server gets the packets from the director's own address and a port of
 * its choice, and answers there.
 */
#ifndef IMBANG_HAIRPIN_H
#define IMBANG_HAIRPIN_H

#include "conn.h"
#include "replies.h"
#include "rng.h"

/* The ports to choose from, for each server and port. Those from 32768 on are
 * the director's own connections', say of a health check to this server. */
#define HAIRPIN_PORT 1024
#define HAIRPIN_PORTS (32768 - HAIRPIN_PORT)

/* So many are tried, from a random one on. */
#define HAIRPIN_TRIES 64

/* Enters the replies of a hairpin that is in the table, which user space may have entered (`r`): 0,
 * or an error. Without a port of the director's, it gets one. */
static __noinline int hairpin_open(const struct flow *flow, const struct conn *c,
				   const struct server *s, const struct conn_record *r)
{
	__u32 from, i, tries = 1;
	struct flow replies;
	__s64 rc = -EEXIST;

	conn_replies_flow(flow, c, s, &replies);
	replies.dst = r ? r->hairpin : s->source;
	replies.dport = r ? r->hairpin_port : 0;
	if (!replies.dst.word[0] && !replies.dst.word[3])
		return rc;
	from = bpf_ntohs(replies.dport) - HAIRPIN_PORT;
	if (!replies.dport) {
		from = random_u32() % HAIRPIN_PORTS;
		tries = HAIRPIN_TRIES;
	}
#pragma nounroll
	for (i = 0; i < tries && rc == -EEXIST; i++) {
		replies.dport = bpf_htons(HAIRPIN_PORT + (from + i) % HAIRPIN_PORTS);
		rc = replies_put(&replies, c, 0);
	}
	return rc < 0 ? rc : 0;
}

/* The flow of a hairpin's replies, by that of its client, which may be the same memory: 1; 0 if
 * there is no such hairpin. */
__noinline int hairpin_replies(const struct flow *client, struct flow *replies)
{
	struct conn seen = {}, *c, *r;
	__u64 was;
	__u32 index;

	if (!client || !replies || !conn_look(client, &seen) || !(seen.flags & CONN_HAIRPIN))
		return 0;
	c = entry_far(seen.index);
	index = c ? c->replies : 0;
	r = entry_far(index);
	was = r ? entry_expires(r) : 0;
	barrier();
	if (!r || was < DEAD_TIME || r->template != TEMPLATE_REPLIES || r->of != seen.index ||
	    r->incarnation != (seen.expires & INCARNATION) || !entry_flow(index, replies))
		return 0;
	barrier();
	return !((was ^ entry_expires(r)) & INCARNATION);
}

#endif
