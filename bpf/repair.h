/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Corrects what the auditor found (`imbang audit --repair`). Packets and timers
 * go on meanwhile, so counts are corrected by atomic additions, and everything is compared first
 * with what was found.
 */
#ifndef IMBANG_REPAIR_H
#define IMBANG_REPAIR_H

#include "conn.h"
#include "conn_entry.h"
#include "conn_life.h"
#include "load.h"
#include "template.h"

/* Also judges whether the server is overloaded, as server_bind and server_unbind
 * would. */
static __noinline int repair_counts(const struct repair *r)
{
	__u32 id = r->server, total;
	struct server *s = server_far(id);
	struct load *l = load_far(id);

	if (!s || !l)
		return REPAIR_FAILED;
	__sync_fetch_and_add(&l->active, r->active);
	__sync_fetch_and_add(&l->inactive, r->inactive);
	__sync_fetch_and_add(&l->persistent, r->persistent);
	unproven_counted(id, r->unproven);
	total = l->active + l->inactive;
	if (s->upper && total >= s->upper)
		load_overloaded(l, 1);
	else if (s->lower ? total < s->lower : !s->upper || (__u64)total * 4 < (__u64)s->upper * 3)
		load_overloaded(l, 0);
	load_changed(id);
	return REPAIR_DONE;
}

static __noinline int repair_controlled(const struct repair *r)
{
	__u32 server = r->server;

	if (!r->flow.template)
		return REPAIR_CHANGED;
	return conn_hold(&r->flow, &server, r->controlled) ? REPAIR_DONE : REPAIR_CHANGED;
}

/* Removes an entry that nothing counts: one that is dead, of a server that there is not, or of the
 * replies of no connection. */
static __noinline int repair_remove(const struct repair *r)
{
	__u32 hash, index = entry_search(&r->flow, &hash);
	struct conn *c = index ? entry_far(index) : 0;
	struct conn seen = { .server = r->server, .index = r->number, .expires = r->expires };

	if (!c || c->index != r->number)
		return REPAIR_CHANGED;
	if (r->flow.template == FLOW_REPLIES && (entry_expires(c) ^ r->expires) & INCARNATION)
		return REPAIR_CHANGED;
	if (conn_lives(c) && !conn_kill(&r->flow, &seen, 0))
		return REPAIR_CHANGED;
	replies_forget(&seen); /* it is dead, and removed by nothing else */
	return entry_take_out(index, seen.expires) ? REPAIR_FAILED : REPAIR_DONE;
}

/* Ends the claim of a bucket by a program that is not there any more. */
static __noinline int repair_claim(const struct repair *r)
{
	union line *line = bucket_line(r->number);
	__u32 control = r->from;

	if (!line || !(control & BUCKET_CLAIMED))
		return REPAIR_FAILED;
	return __sync_val_compare_and_swap(&line->word[0], control, control_left(control)) ==
			       control
		       ? REPAIR_DONE
		       : REPAIR_CHANGED;
}

/* Empties the slot `from` of a bucket that leads to another bucket's entry, or to none. Of a chain
 * that does nothing is left: the rest of it is entered anew. */
static __noinline int repair_slot(const struct repair *r)
{
	union line *line = bucket_line(r->number);
	int done = 0;

	if (!line || !bucket_claim_once(line))
		return REPAIR_FAILED;
	if (bucket_word(line, r->from) == r->server) {
		if (r->from == BUCKET_CHAIN)
			bucket_chain_set(line, 0);
		else
			slot_refill(line, r->from);
		done = 1;
	}
	bucket_leave(line);
	return done ? REPAIR_DONE : REPAIR_CHANGED;
}

/* Enters an entry that is in no bucket, as it was found. If its flow has got another one, its line
 * is given back. */
static __noinline int repair_enter(const struct repair *r)
{
	struct conn *c = entry_far(r->number);
	__u64 expires = c ? entry_expires(c) : 0;
	__u32 hash, other = entry_search(&r->flow, &hash);
	struct search *s;
	int rc;

	if (!c || expires != r->expires || other == r->number)
		return REPAIR_CHANGED;
	if (__sync_val_compare_and_swap(&c->expires, expires, expires & INCARNATION) != expires)
		return REPAIR_CHANGED;
	if (other) {
		room_give(r->number);
		return REPAIR_DONE;
	}
	s = search_open();
	if (!s)
		return REPAIR_FAILED;
	search_for(s, &r->flow);
	c->index = r->number;
	c->hash = s->hash;
	c->next = 0;
	rc = entry_enter(s, c, r->number, expires);
	search_close();
	if (rc) /* it stays what it was */
		*(volatile __u64 *)&c->expires = expires;
	return rc ? REPAIR_FAILED : REPAIR_DONE;
}

/* Gives back a line that has no entry, or takes one that has. */
static __noinline int repair_line(const struct repair *r)
{
	struct block_head *head = block_head((r->number & INDEX_MASK) / INDEX_LINES);
	struct conn *c = entry_far(r->number);
	__u64 bit = 1ULL << r->number % INDEX_LINES;

	if (!head || !c || entry_expires(c) != r->expires)
		return REPAIR_CHANGED;
	if (r->expires < DEAD_TIME)
		room_give(r->number);
	else
		__sync_fetch_and_and(&head->free, ~bit);
	return REPAIR_DONE;
}

/* Gives a connection that is said to have an entry of its replies a line for that; 0 if it has one.
 */
static __noinline int repair_replies_line(const struct repair *r, __u32 line, struct conn *seen)
{
	__u32 claim;
	struct conn *c = conn_claim(&r->flow, &claim), *replies;
	int lacks = 0;

	if (!c)
		return 0;
	replies = c->replies ? entry_far(c->replies) : 0;
	if (conn_lives(c) && c->index == r->number && c->flags & CONN_HAS_REPLIES &&
	    !(replies && entry_expires(replies) >= DEAD_TIME && replies->of == c->index &&
	      replies_conn(replies))) {
		c->replies = line;
		conn_copy(c, seen);
		seen->replies = line;
		lacks = 1;
	}
	bucket_release(claim);
	return lacks;
}

/* Enters a connection's replies. If they are another's, they stay so. A hairpin gets another port.
 */
static __noinline int repair_replies(const struct repair *r)
{
	__u32 line = replies_room(&r->flow);
	struct conn seen = {};
	struct flow replies;
	struct server *s;
	__s64 rc;

	if (!line)
		return REPAIR_FAILED;
	if (!repair_replies_line(r, line, &seen)) {
		room_give(line);
		return REPAIR_CHANGED;
	}
	s = server_far(seen.server);
	if (!s) {
		room_give(line);
		return REPAIR_FAILED;
	}
	if (seen.flags & CONN_HAIRPIN) {
		rc = hairpin_open(&r->flow, &seen, s, 0);
	} else {
		conn_replies_flow(&r->flow, &seen, s, &replies);
		rc = replies_put(&replies, &seen, 0);
	}
	if (rc >= 0)
		return REPAIR_DONE;
	room_give(line);
	if (rc != -EEXIST || seen.flags & CONN_HAIRPIN)
		return REPAIR_FAILED;
	replies_lost(conn_name(seen.index, seen.expires));
	return REPAIR_DONE;
}

static __always_inline int repair_one(const struct repair *r)
{
	switch (r->kind) {
	case REPAIR_COUNTS:
		return repair_counts(r);
	case REPAIR_CONTROLLED:
		return repair_controlled(r);
	case REPAIR_REMOVE:
		return repair_remove(r);
	case REPAIR_CLAIM:
		return repair_claim(r);
	case REPAIR_SLOT:
		return repair_slot(r);
	case REPAIR_ENTER:
		return repair_enter(r);
	case REPAIR_LINE:
		return repair_line(r);
	case REPAIR_REPLIES:
		return repair_replies(r);
	}
	return REPAIR_FAILED;
}

#endif
