/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * An upgrade whose connection table has another layout enters the earlier
 * build's connections again, here. Their servers count them already, as loads are
 * kept, and so do their templates; what conn_insert counts is taken back. What backups know
 * of them is kept, too: a replica remains one. One that has its replies has an entry of them here;
 * but replies that are a new connection's stay so.
 */
#ifndef IMBANG_ADOPT_H
#define IMBANG_ADOPT_H

#include "clock.h"
#include "conn.h"
#include "conn_entry.h"
#include "conn_life.h"
#include "load.h"
#include "record.h"
#include "template.h"
#include "told.h"

/* The new build was first with a connection of this flow: the earlier one is over. */
static __noinline enum record_result adopt_superseded(const struct flow *flow, __u32 server,
						      const struct control *control, __u8 flags)
{
	entry_counted(flow, server, flags, -1);
	if (flow->template) {
		template_counted(server, -1);
		return RECORD_EXISTS;
	}
	if (control->kind)
		template_release(flow, control);
	server_unbind(server, flags & CONN_INACTIVE);
	return RECORD_EXISTS;
}

/* Notes what backups knew of an entry (told.h). */
static __noinline void adopt_told(const struct flow *flow, const struct conn_record *r)
{
	__u32 claim;
	struct conn *c = conn_claim(flow, &claim);

	if (!c)
		return;
	if (conn_lives(c) && c->server == r->server)
		told_again(c, r->told_end, r->told);
	bucket_release(claim);
}

/* Enters the replies of a connection that was adopted: 0, or not if they are a new connection's. */
static __noinline int adopt_replies(const struct conn_record *r, const struct conn *c)
{
	__u32 id = r->server;
	struct server *s = bpf_map_lookup_elem(&servers, &id);
	struct flow replies;

	if (s) {
		conn_replies_flow(&r->flow, c, s, &replies);
		if (c->flags & CONN_HAIRPIN) {
			replies.dst = r->hairpin;
			replies.dport = r->hairpin_port;
		}
		if (replies_put(&replies, c, 0) >= 0)
			return 0;
	}
	room_give(c->replies);
	return -EEXIST;
}

/* A connection that was adopted has no replies: a hairpin cannot live without. */
static __always_inline void adopt_unreplied(const struct flow *flow, struct conn *c)
{
	if (!(c->flags & CONN_HAIRPIN))
		replies_lost(conn_name(c->index, c->expires));
	else if (conn_kill(flow, c, 0))
		conn_remove(flow, c);
}

static __noinline enum record_result adopt_entry(const struct conn_record *r)
{
	struct control control = record_control(r);
	struct conn fresh = {};
	struct flow flow = r->flow;
	int rc;

	record_conn(r, &fresh);
	fresh.flags |= CONN_ADOPTED;
	if (fresh.flags & CONN_HAS_REPLIES)
		fresh.replies = replies_room(&flow);
	if (fresh.flags & CONN_HAS_REPLIES && !fresh.replies)
		return RECORD_NO_ROOM;
	rc = conn_insert(&flow, &fresh, record_timeout(r));
	if (rc && fresh.replies)
		room_give(fresh.replies);
	if (!rc) {
		entry_counted(&flow, r->server, r->flags, -1);
		adopt_told(&flow, r);
		if (fresh.replies && adopt_replies(r, &fresh))
			adopt_unreplied(&flow, &fresh);
		return RECORD_ENTERED;
	}
	if (rc != -EEXIST)
		return RECORD_NO_ROOM;
	/* An upgrade that was interrupted came so far. */
	if (conn_look(&flow, &fresh) && fresh.flags & CONN_ADOPTED)
		return RECORD_ENTERED;
	return adopt_superseded(&flow, control.server, &control, r->flags);
}

static long adopt_one(__u32 i, void *unused)
{
	struct conn_record *r = bpf_map_lookup_elem(&conn_records, &i);

	if (!r || !r->flow.family)
		return 0;
	room_prepare(entry_kind(r->flow.family), ROOM_AT_HAND);
	split_if_due();
	r->result = adopt_entry(r);
	return 0;
}

#endif
