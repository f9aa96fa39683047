/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which connection a server's packet is a reply of.
 *
 * A connection lies under its client's flow. A reply has the client in it, and
 * the server in place of the service; so the service is all that is missing.
 * The address and port of nearly every server serve one virtual address and
 * port: `reply_owners` says which, and the connection needs no entry for its
 * replies. Others have one in the reverse table: of further services with the
 * same server, of firewall marks, of other ports than the service's own, and
 * hairpins.
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

/* The client's flow that a packet of such a sender is a reply to: the server, or NULL if the packet
 * is none of it. */
static __always_inline struct server *reply_client(const struct reply_owner *owner,
						   const struct flow *flow, struct flow *client)
{
	__u32 id = owner->server;
	struct server *s = bpf_map_lookup_elem(&servers, &id);

	if (!s || !address_equal(&s->addr, &flow->src))
		return 0;
	client->src = flow->dst;
	client->dst = s->owner.addr;
	client->sport = flow->dport;
	client->dport = s->owner.port;
	client->protocol = flow->protocol;
	client->template = 0;
	client->family = flow->family;
	client->pad = 0;
	return s;
}

/* Whether the connection of that flow is the one. */
static __always_inline int reply_is_owners(const struct reply_owner *owner, const struct flow *flow,
					   const struct conn *seen)
{
	return seen->server == owner->server && seen->port == flow->sport &&
	       replies_return(seen->forward) && !(seen->flags & CONN_HAIRPIN);
}

/* Whether a connection that the reverse table led to is the one whose replies have this flow: the
 * entry may have become another's while it was copied. The server takes the director for a
 * hairpin's client. */
static __always_inline int reply_is_of(const struct flow *flow, const struct flow *client,
				       const struct conn *seen)
{
	return seen->port == flow->sport &&
	       (seen->flags & CONN_HAIRPIN ||
		(client->sport == flow->dport && address_equal(&client->src, &flow->dst)));
}

/* The connection that a packet is a reply of, its client's flow, and what it is. If a client
 * reached one server from one port through two services, the server cannot tell either: replies
 * are the later one's. For the fast path, which has no room for the server's address: it does not
 * ask for that of a client with two connections from one port to two servers' same port. */
static __always_inline struct conn *reply_conn_in(const struct flow *flow, struct flow *client,
						  const struct reply_owner *owner,
						  union conn_key *key, struct conn *seen,
						  __u8 family)
{
	struct server *s;
	struct conn *c;

	if ((!owner || owner->shared) && reverse_find_in(flow, key, client, family, 1)) {
		c = conn_look_in(client, key, seen, family);
		if (c && reply_is_of(flow, client, seen))
			return c;
	}
	s = owner ? reply_client(owner, flow, client) : 0;
	if (!s || s->flags & SERVER_DRAINING)
		return 0;
	c = conn_look_in(client, key, seen, family);
	return c && reply_is_owners(owner, flow, seen) ? c : 0;
}

/* By what a client's flow was found. */
enum lead { LEAD_NONE, LEAD_LISTED, LEAD_OWNER };

/* The client's flow that a packet may be a reply to, of two: what the reverse table knows comes
 * first where the sender has several services, and else last, as a connection may be older than
 * the owner. */
__noinline int reply_lead(const struct flow *flow, struct flow *client, int second)
{
	const struct reply_owner *owner;

	if (!flow || !client)
		return LEAD_NONE;
	owner = reply_owner_of(flow);
	if (owner ? !!owner->shared == second : second)
		return owner && reply_client(owner, flow, client) ? LEAD_OWNER : LEAD_NONE;
	return reverse_find(flow, client) ? LEAD_LISTED : LEAD_NONE;
}

/* Whether the connection of that flow is the one whose replies have the packet's. */
__noinline int reply_suits(const struct flow *flow, const struct flow *client,
			   const struct conn *seen, int lead)
{
	const struct reply_owner *owner;
	struct server *s;
	__u32 id;

	if (!flow || !client || !seen)
		return 0;
	if (lead == LEAD_OWNER) {
		owner = reply_owner_of(flow);
		return owner && reply_is_owners(owner, flow, seen);
	}
	id = seen->server;
	s = bpf_map_lookup_elem(&servers, &id);
	return s && address_equal(&s->addr, &flow->src) && reply_is_of(flow, client, seen);
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
		if (lead && conn_look(client, seen) && reply_suits(flow, client, seen, lead))
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

/* Enters where the replies of a flow lead, as of others than the sender's one
 * service: 0, or an error. */
static __noinline long reverse_enter(const struct flow *reverse, const struct flow *client,
				     __u64 flags)
{
	struct reply_owner *owner = reply_owner_of(reverse);

	if (owner && !owner->shared)
		owner->shared = 1;
	if (!state.listed)
		state.listed = 1;
	return reverse_put(reverse, client, flags);
}

/* Replies of a flow are those of a connection without an entry now; another's, older
 * one is in the way: 0, or an error. */
static __always_inline long reverse_clear(const struct flow *reverse)
{
	return state.listed ? reverse_forget(reverse) : 0;
}

#endif
