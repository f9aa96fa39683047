/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which connection a packet is of, from its client or its server.
 */
#ifndef IMBANG_FIND_H
#define IMBANG_FIND_H

#include "conn_packet.h"
#include "fragment.h"
#include "replies.h"
#include "reply_side.h"
#include "settings.h"

/* A packet of a connection whose server was deleted. */
static __always_inline int conn_orphaned(struct packet *p, const struct conn *c)
{
	p->server = c->server;
	return drop(p, REASON_DROP_SERVER_DELETED);
}

/* A reply of a connection: a decision. */
static __always_inline int reply_found(struct packet *p, const struct flow *client,
				       struct conn *seen, const struct settings *set)
{
	__u32 id = seen->server;
	struct server *s = set->draining ? server_far(id) : 0;

	if (s && reset_due(p, s))
		return conn_reset(p, client, seen, FROM_SERVER, set);
	return conn_out(p, client, seen, set);
}

/* What a client's packet meets in the connection table: a connection that it may use, that it is
 * not to use, whose server was deleted, or that is to be reset. */
enum meets { MEETS_NONE, MEETS_CONN, MEETS_OUTDATED, MEETS_ORPHAN, MEETS_DRAINED };

static __always_inline enum meets meet(const struct packet *p, struct conn *seen, struct server **s,
				       const struct settings *set)
{
	if (!conn_look(&p->flow, seen))
		return MEETS_NONE;
	*s = available_server(seen);
	if (*s && reset_due(p, *s))
		return MEETS_DRAINED;
	if (conn_outdated(p, seen, *s, set))
		return MEETS_OUTDATED;
	return *s ? MEETS_CONN : MEETS_ORPHAN;
}

/* A whole packet, or the fragment that has the ports: of which connection?
 * UNDECIDED if none; p->outdated tells of one that is not to be used. */
__noinline int find(struct packet *p, int expect_replies)
{
	struct settings *set = get_settings();
	struct flow client = {};
	struct conn seen = {};
	struct server *s;
	enum meets meets;

	if (!p)
		return VERDICT_DROP;
	if (expect_replies && reply_conn(&p->flow, &client, &seen))
		return reply_found(p, &client, &seen, set);
	meets = meet(p, &seen, &s, set);
	if (meets == MEETS_CONN)
		return conn_in(p, &p->flow, &seen, s, set);
	if (meets == MEETS_ORPHAN)
		return conn_orphaned(p, &seen);
	if (meets == MEETS_DRAINED)
		return conn_reset(p, &p->flow, &seen,
				  replies_seen(&seen) ? FROM_CLIENT : CLIENT_ONLY, set);
	if (meets == MEETS_OUTDATED)
		p->outdated = 1;
	else
		note_lapsed(p, &seen);
	return UNDECIDED;
}

/* A reply that came in where clients do; UNDECIDED if it is none. Where servers
 * are, too, it is looked for before a new connection, and else last. */
__noinline int find_reply(struct __sk_buff *skb, struct packet *p)
{
	struct settings *set = get_settings();
	struct flow client = {};
	struct conn seen = {};

	if (!p || !reply_conn(&p->flow, &client, &seen))
		return UNDECIDED;
	p->news &= ~NEWS_ASIDE;
	if (!from_side_of(skb, p, &p->flow.src, seen.server) && !may_be_handed(skb, p, &client.dst))
		return drop(p, REASON_DROP_REVERSE_PATH);
	return reply_found(p, &client, &seen, set);
}

/* A later fragment of a packet that is a connection by itself. */
static __always_inline int one_packet_later(struct packet *p, __u32 id)
{
	struct server *s = server_of(id);

	if (!s || !(s->flags & SERVER_AVAILABLE))
		return drop(p, REASON_DROP_SERVER_DELETED);
	count_in(p, s->service, id);
	return decide_server(p, id, s, s->forward, 0);
}

/* A fragment without ports: it goes where the first one went. Returns a
 * verdict or a decision. */
__noinline int find_later(struct __sk_buff *skb, struct packet *p)
{
	struct settings *set = get_settings();
	struct fragment *f;
	struct flow client = {};
	struct conn seen = {};
	int found;
	struct server *s;

	if (!p)
		return VERDICT_DROP;
	f = fragment_find(p);
	if (!f)
		return pass(p, REASON_PASS_FRAGMENT);
	if (f->server != NO_SERVER)
		return one_packet_later(p, f->server);
	client = f->client;
	p->flow.protocol = client.protocol;
	found = conn_look(&client, &seen);
	if (f->direction == FROM_SERVER) {
		if (!found)
			return pass(p, REASON_PASS_NO_CONNECTION);
		if (!from_side_of(skb, p, &p->flow.src, seen.server))
			return drop(p, REASON_DROP_REVERSE_PATH);
		return conn_out(p, &client, &seen, set);
	}
	if (!found)
		return drop(p, REASON_DROP_SERVER_DELETED);
	s = available_server(&seen);
	return s ? conn_in(p, &client, &seen, s, set) : conn_orphaned(p, &seen);
}

#endif
