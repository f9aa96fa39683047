/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which connection a server's packet is a reply of.
 *
 * A connection lies under its client's flow. A reply has the client in it, and
 * the server in place of the service; so the service is all that is missing.
 * The address and port of nearly every server serve one virtual address and
 * port: `reply_owners` says which, and the connection needs no entry for its
 * replies. Others have one in the connection table: of further services with the
 * same server, of firewall marks, of other ports than the service's own, and
 * hairpins.
 *
 * Invariants of entries of replies (FLOW_REPLIES, TEMPLATE_REPLIES):
 * 1. Such an entry names its connection's, by index and incarnation, from when it is entered
 *    until it leaves its bucket. The connection names it, too (`replies`): it has had that line
 *    since before it lived.
 * 2. It is entered after its connection; if that has died by then, it is taken out under the same
 *    claim. Else it is taken out by the connection's owner, after the connection has died and
 *    before it is removed. Both write first and read then, by atomic operations, so one of them
 *    sees what the other has written.
 * 3. One whose connection is gone counts as absent. If its bucket could not be claimed, it is left
 *    to the sweep, or to the next entry of replies of its flow. Its time is when the sweep looks
 *    at it again.
 * 4. A later connection whose replies have the same flow replaces it. The earlier one then is not
 *    CONN_LISTED any more.
 */
#ifndef IMBANG_REPLIES_H
#define IMBANG_REPLIES_H

#include "conn_entry.h"
#include "flow.h"
#include "forward/method.h"

/* Whether replies do, or one did. */
static __always_inline int replies_seen(const struct conn *c)
{
	return replies_return(c->forward) || c->flags & CONN_REPLIED;
}

/* What a packet's sender stands for; NULL if that is not one service. */
static __always_inline struct reply_owner *reply_owner_of(const struct flow *flow)
{
	struct endpoint at = {};

	at.addr = flow->src;
	at.port = flow->sport;
	at.protocol = flow->protocol;
	return bpf_map_lookup_elem(&reply_owners, &at);
}

/* The server that a packet of such a sender is of; NULL if it is none. */
static __always_inline struct server *reply_server(const struct reply_owner *owner,
						   const struct flow *flow)
{
	__u32 id = owner->server;
	struct server *s = server_of(id);

	return s && address_equal(&s->addr, &flow->src) ? s : 0;
}

/* The client's flow that its packet is a reply to. */
static __always_inline void reply_client(const struct flow *flow, const struct server *s,
					 struct flow *client)
{
	client->src = flow->dst;
	client->dst = s->owner.addr;
	client->sport = flow->dport;
	client->dport = s->owner.port;
	client->protocol = flow->protocol;
	client->template = 0;
	client->family = flow->family;
	client->pad = 0;
}

/* Likewise, as key: the fast path has no room for a flow. */
static __always_inline void reply_key(const struct flow *flow, const struct server *s,
				      union conn_key *key, __u8 family)
{
	if (family == AF_INET6) {
		reply_client(flow, s, &key->six);
		return;
	}
	key->four.src = address_to4(&flow->dst);
	key->four.dst = address_to4(&s->owner.addr);
	key->four.sport = flow->dport;
	key->four.dport = s->owner.port;
	*(__u32 *)&key->four.protocol = flow->protocol;
}

/* Whether the connection of that flow is the one. */
static __always_inline int reply_is_owners(const struct reply_owner *owner, const struct flow *flow,
					   const struct conn *seen)
{
	return seen->server == owner->server && seen->port == flow->sport &&
	       replies_return(seen->forward) && !(seen->flags & CONN_HAIRPIN);
}

/* Flags of a connection that has an entry of its replies. */
#define CONN_HAS_REPLIES (CONN_LISTED | CONN_HAIRPIN)

/* How long until the sweep looks at such an entry again. */
#define REPLIES_LOOK (8 * NSEC_PER_SEC)

/* The connection that an entry of replies names; NULL if that is gone. */
static __always_inline struct conn *replies_conn(const struct conn *r)
{
	struct conn *c = entry_far(r->of);
	__u64 expires = c ? entry_expires(c) : 0;

	return expires >= 2 * DEAD_TIME && (expires & INCARNATION) == r->incarnation &&
			       c->replies == r->index
		       ? c
		       : 0;
}

/* Reads the connection that an entry names (`part`: in part), if it is that of the replies whose
 * flow is the key; the client's flow becomes the key. NULL if there is none (table/entry.h, rule
 * 5).
 */
static __always_inline struct conn *replies_read(struct conn *r, union conn_key *key,
						 struct conn *seen, __u8 family, int part)
{
	__u64 was = entry_expires(r);
	__u32 of = r->of, incarnation = r->incarnation, index = r->index, replies;
	struct conn *c;

	barrier();
	if (was < DEAD_TIME || !entry_is(r, key->word, family) ||
	    (was ^ entry_expires(r)) & INCARNATION)
		return 0;
	c = line_of(of, entry_lines(family));
	if (!c)
		return 0;
	if (part)
		conn_copy_part(c, seen);
	else
		conn_copy(c, seen);
	replies = c->replies;
	if (family == AF_INET6)
		key->six = ((struct conn6 *)c)->flow;
	else
		key->four = ((struct conn4 *)c)->flow;
	barrier();
	return replies == index && (seen->expires & INCARNATION) == incarnation &&
			       !((seen->expires ^ entry_expires(c)) & INCARNATION) &&
			       !(seen->flags & CONN_DEAD) && seen->flags & CONN_HAS_REPLIES &&
			       seen->expires > time_coarse()
		       ? c
		       : 0;
}

/* The connection whose replies have a flow, and what it is; its client's flow becomes the key. NULL
 * if there is none. Only in_packets and expires may be written by the pointer. */
static __always_inline struct conn *replies_look_in(const struct flow *flow, union conn_key *key,
						    struct conn *seen, __u8 family)
{
	struct conn *r;

	key_of(flow, key, family);
	if (family == AF_INET6)
		key->six.template = FLOW_REPLIES;
	else
		key->four.template = FLOW_REPLIES;
	r = entry_find(key, family);
	if (!r)
		return 0;
	if (family == AF_INET)
		HOOK(REPLIES_FOUND);
	return replies_read(r, key, seen, family, 1);
}

/* Likewise, of any family: 1, or 0; and the client's flow. */
__noinline int replies_look(const struct flow *flow, struct flow *client, struct conn *seen)
{
	struct search *s = search_open();
	struct conn *r = 0;
	__u32 index;

	if (s && flow && client && seen) {
		search_as(s, flow, FLOW_REPLIES);
		index = search(s);
		if (s->six) {
			r = index ? line_of(index, 2) : 0;
			r = r ? replies_read(r, &s->key, seen, AF_INET6, 0) : 0;
			*client = s->key.six;
		} else {
			r = index ? line_of(index, 1) : 0;
			r = r ? replies_read(r, &s->key, seen, AF_INET, 0) : 0;
			flow_from4(&s->key.four, client);
		}
	}
	search_close();
	return !!r;
}

/* Names a connection: the index of its entry, and the incarnation of that. Never 0. */
static __always_inline __s64 conn_name(__u32 index, __u64 expires)
{
	return (expires & INCARNATION) << INDEX_BITS | index;
}

/* A connection whose replies are another's now has no entry of them. */
__noinline int replies_lost(__s64 name)
{
	struct conn *c = line_of(name & INDEX_MASK, 1);
	union line *line = c ? entry_claim(c) : 0;
	int lives;

	if (!c || !line)
		return 0;
	/* Under the claim one that lives stays so; a dead one is its owner's, and may become the
	 * next. */
	lives = conn_lives(c);
	barrier();
	if (lives && (entry_expires(c) & INCARNATION) == name >> INDEX_BITS)
		c->flags &= ~CONN_LISTED;
	bucket_leave(line);
	return 0;
}

/* The sender of these replies serves others than the one service that it is known by. */
static __noinline void reply_share(const struct flow *replies)
{
	struct reply_owner *owner = reply_owner_of(replies);

	if (owner && !owner->shared)
		owner->shared = 1;
	if (!state.listed)
		state.listed = 1;
}

/* Under the claim: enters replies whose entry is written, in place of a former one: 0, or an error:
 * -ENOENT if their connection has ended, -EEXIST if the former stays (`replaces`: 0). */
static __always_inline int replies_place(struct search *s, union line *line, struct conn *r,
					 struct conn *former, int replaces)
{
	__u64 look = now_coarse_ns() + REPLIES_LOOK;
	int rc;

	if (former && !replaces && replies_conn(former))
		return -EEXIST;
	if (!replies_conn(r))
		return -ENOENT;
	if (former)
		bucket_drop_behind(line, former, s->found, s->before);
	rc = bucket_enter(s, line, r, r->index, look);
	if (rc)
		return rc;
	entry_set_end(r, look); /* atomic: invariant 2 */
	if (replies_conn(r))
		return 0;
	bucket_drop_behind(line, r, r->index, 0); /* a chain begins with it */
	return -ENOENT;
}

/* Enters the entry of a connection's replies, in the line that it has for it: 0, or the connection
 * that has lost them (conn_name, replies_lost); or an error: -EEXIST if the flow is that of another
 * connection's replies and stays so (`replaces`: 0). If the connection has ended meanwhile, the
 * line is given back. */
__noinline __s64 replies_insert(const struct flow *replies, const struct conn *of, int replaces)
{
	struct conn *r, *former;
	__u32 former_index = 0;
	struct search *s;
	union line *line;
	__s64 lost = 0;
	int rc = -EBUSY;

	if (!replies || !of)
		return -EINVAL;
	r = line_of(of->replies, 1);
	s = r ? search_open() : 0;
	if (!r || !s)
		return -E2BIG;
	search_for(s, replies);
	entry_begin(s, r, of->replies);
	r->flags = 0;
	r->template = TEMPLATE_REPLIES;
	r->of = of->index;
	r->incarnation = of->expires & INCARNATION;
	line = search_bucket(s);
	if (line) {
		former = s->found ? line_of(s->found, 1) : 0;
		rc = replies_place(s, line, r, former, replaces);
		if (former && entry_expires(former) < DEAD_TIME) {
			former_index = s->found;
			lost = conn_name(former->of, former->incarnation);
		}
		bucket_leave(line);
	}
	search_close();
	if (former_index)
		room_give(former_index);
	if (rc == -ENOENT)
		room_give(of->replies);
	else if (rc)
		return rc;
	return lost;
}

/* Likewise, of a sender that is known to serve others by then. Not in one function: a chain of
 * calls has no room on the stack. */
static __always_inline __s64 replies_put(const struct flow *replies, const struct conn *of,
					 int replaces)
{
	reply_share(replies);
	return replies_insert(replies, of, replaces);
}

/* Takes an entry of replies out, whose bucket is claimed, and ends the claim. */
static __always_inline void replies_drop(struct conn *r, __u32 bucket)
{
	union line *line = bucket_line(bucket);
	__u32 index = r->index;

	if (!line)
		return;
	bucket_drop(line, r, index);
	bucket_leave(line);
	room_give(index);
}

/* Replies of a flow are those of a connection without an entry now: another's, older one is in the
 * way. 0, or the connection that has lost them (replies_lost), or -EBUSY if it stays there. */
__noinline __s64 replies_clear(const struct flow *replies)
{
	__u32 hash, claim;
	struct conn *r;
	__s64 lost;

	if (!replies || !state.listed || !entry_search(replies, &hash))
		return 0;
	r = conn_claim(replies, &claim);
	if (!r) /* it is gone, or could not be claimed */
		return entry_search(replies, &hash) ? -EBUSY : 0;
	lost = conn_name(r->of, r->incarnation);
	replies_drop(r, claim);
	return lost;
}

/* Takes the entry of a dead connection's replies out, if it has one. */
__noinline int replies_forget(const struct conn *dead)
{
	struct conn *c = dead ? entry_far(dead->index) : 0, *r = c ? entry_far(c->replies) : 0;
	__u64 expires = r ? entry_expires(r) : 0;

	barrier();
	if (!c || !r || expires < DEAD_TIME || r->template != TEMPLATE_REPLIES ||
	    r->of != dead->index || r->incarnation != (dead->expires & INCARNATION))
		return 0;
	/* If that fails, the sweep does it. */
	(void)entry_take_out(c->replies, expires);
	return 0;
}

/* The sweep has come to the entry of these replies: it goes if its connection is gone. */
static __always_inline int replies_due(const struct flow *replies, __u64 now)
{
	__u32 claim;
	struct conn *r = conn_claim(replies, &claim);

	if (!r)
		return 0;
	if (!replies_conn(r)) {
		replies_drop(r, claim);
		return 0;
	}
	entry_set_end(r, now + REPLIES_LOOK);
	bucket_release(claim);
	return 0;
}

/* The connection that a packet is a reply of, and what it is; its client's flow becomes the key. If
 * a client reached one server from one port through two services, the server cannot tell either:
 * replies are the later one's. */
static __always_inline struct conn *reply_conn_in(const struct flow *flow,
						  const struct reply_owner *owner,
						  union conn_key *key, struct conn *seen,
						  __u8 family)
{
	struct server *s;
	struct conn *c;

	if ((!owner || owner->shared) && state.listed) {
		c = replies_look_in(flow, key, seen, family);
		if (c)
			return c;
	}
	s = owner ? reply_server(owner, flow) : 0;
	if (!s || s->flags & SERVER_DRAINING)
		return 0;
	reply_key(flow, s, key, family);
	c = conn_look_at(key, seen, family);
	return c && reply_is_owners(owner, flow, seen) ? c : 0;
}

/* By what a client's flow was found. */
enum lead { LEAD_NONE, LEAD_LISTED, LEAD_OWNER };

/* How a packet's connection may be found, of two ways; and its client's flow, if that is by the
 * sender. Entries of replies come first where the sender has several services, and else last, as a
 * connection may be older than the owner. */
__noinline int reply_lead(const struct flow *flow, struct flow *client, int second)
{
	const struct reply_owner *owner;
	struct server *s;

	if (!flow || !client)
		return LEAD_NONE;
	owner = reply_owner_of(flow);
	if (owner ? !!owner->shared != second : !second)
		return state.listed ? LEAD_LISTED : LEAD_NONE;
	s = owner ? reply_server(owner, flow) : 0;
	if (!s)
		return LEAD_NONE;
	reply_client(flow, s, client);
	return LEAD_OWNER;
}

/* Whether the connection of the sender's flow is the one whose replies have the packet's. */
__noinline int reply_suits(const struct flow *flow, const struct conn *seen)
{
	const struct reply_owner *owner = flow ? reply_owner_of(flow) : 0;

	return owner && seen && reply_is_owners(owner, flow, seen);
}

/* The connection that a packet is a reply of, on the whole path: its client's flow, and what it is;
 * 1, or 0. */
static __always_inline int reply_conn(const struct flow *flow, struct flow *client,
				      struct conn *seen)
{
	int lead, i;

#pragma nounroll
	for (i = 0; i < 2; i++) {
		lead = reply_lead(flow, client, i);
		if (lead == LEAD_LISTED
			    ? replies_look(flow, client, seen)
			    : lead && conn_look(client, seen) && reply_suits(flow, seen))
			return 1;
	}
	return 0;
}

/* Whether a connection that is to be needs an entry for its replies: they are not
 * known by their sender. A hairpin has one already. */
static __always_inline int reply_listed(const struct flow *flow, const struct conn *c,
					const struct server *s)
{
	if (!replies_return(c->forward) || c->flags & CONN_HAIRPIN)
		return 0;
	return !(s->flags & SERVER_OWNS_REPLIES) || c->port != s->port ||
	       flow->dport != s->owner.port || !address_equal(&flow->dst, &s->owner.addr);
}

#endif
