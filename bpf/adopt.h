/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * An upgrade whose connection table has another layout enters the earlier build's connections
 * again, here, and counts them at their servers: loads begin at 0. Their templates and their
 * clients' networks count them already. What backups know of them is kept, too: a replica
 * remains one. One that has its replies has an entry of them here; but replies that are a new
 * connection's stay so.
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

/* The entry's server counts it, before it is entered. */
static __noinline void adopt_count(const struct flow *flow, __u32 id, __u8 flags)
{
	struct server *s = server_far(id);
	struct load *l = load_far(id);

	if (flow->template)
		template_counted(id, 1);
	else if (s && l)
		server_bind(s, l, flags & CONN_INACTIVE);
	load_changed(id);
}

/* It was not entered. */
static __noinline void adopt_uncount(const struct flow *flow, __u32 id, __u8 flags)
{
	if (flow->template)
		template_counted(id, -1);
	else
		server_unbind(id, flags & CONN_INACTIVE);
}

/* The client's network counts it already, or it is over. */
static __always_inline void adopt_uncount_client(const struct flow *flow)
{
	if (get_settings()->client_share && !flow->template)
		client_counted(&flow->src, -1);
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
	struct server *s = server_far(r->server);
	struct flow replies;
	__s64 rc = -EEXIST;

	if (s && c->flags & CONN_HAIRPIN) {
		rc = hairpin_open(&r->flow, c, s, r);
	} else if (s) {
		conn_replies_flow(&r->flow, c, s, &replies);
		rc = replies_put(&replies, c, 0);
	}
	if (rc < 0)
		room_give(c->replies);
	return rc < 0;
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
	adopt_count(&flow, r->server, r->flags);
	rc = conn_insert(&flow, &fresh, record_timeout(r));
	if (rc == -EEXIST && conn_settled_away(&flow)) /* no connection came of a packet */
		rc = conn_insert(&flow, &fresh, record_timeout(r));
	if (rc && fresh.replies)
		room_give(fresh.replies);
	if (!rc) {
		adopt_uncount_client(&flow);
		adopt_told(&flow, r);
		if (fresh.replies && adopt_replies(r, &fresh))
			adopt_unreplied(&flow, &fresh);
		return RECORD_ENTERED;
	}
	adopt_uncount(&flow, r->server, r->flags);
	if (rc != -EEXIST)
		return RECORD_NO_ROOM;
	/* An upgrade that was interrupted came so far. */
	if (conn_look(&flow, &fresh) && fresh.flags & CONN_ADOPTED)
		return RECORD_ENTERED;
	/* The new build was first with a connection of this flow: the earlier one is over. */
	adopt_uncount_client(&flow);
	if (!flow.template && control.kind)
		template_release(&flow, &control);
	return RECORD_EXISTS;
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
