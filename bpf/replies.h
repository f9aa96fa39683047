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

/* The connection that a packet of such a sender is a reply of, its client's flow, and what
 * it is. */
static __always_inline struct conn *reply_owner_conn(const struct reply_owner *owner,
						     const struct flow *flow, struct flow *client,
						     union conn_key *key, struct conn *seen,
						     __u8 family, int fast)
{
	__u32 id = owner->server;
	struct server *s = bpf_map_lookup_elem(&servers, &id);
	struct conn *c;

	if (!s || !address_equal(&s->addr, &flow->src))
		return 0;
	if (fast && s->flags & SERVER_DRAINING)
		return 0;
	client->src = flow->dst;
	client->dst = s->owner.addr;
	client->sport = flow->dport;
	client->dport = s->owner.port;
	client->protocol = flow->protocol;
	client->template = 0;
	client->family = family;
	client->pad = 0;
	c = conn_look_in(client, key, seen, family);
	if (!c || seen->server != id || seen->port != flow->sport)
		return 0;
	return replies_return(seen->forward) && !(seen->flags & CONN_HAIRPIN) ? c : 0;
}

/* Whether a connection is the one whose replies have this flow. The reverse entry that
 * led there may have become another's while it was copied. The fast path has no room
 * for the server's address; it does not ask for that of a client with two connections
 * from one port to two servers' same port. */
static __always_inline int reply_is_of(const struct flow *flow, const union conn_key *client,
				       const struct conn *seen, __u8 family, int fast)
{
	__u32 id = seen->server;
	struct server *s;

	if (seen->port != flow->sport)
		return 0;
	if (!fast) {
		s = bpf_map_lookup_elem(&servers, &id);
		if (!s || !address_equal(&s->addr, &flow->src))
			return 0;
	}
	/* The server takes the director for a hairpin's client. */
	if (seen->flags & CONN_HAIRPIN)
		return 1;
	if (family == AF_INET6)
		return client->six.sport == flow->dport &&
		       address_equal(&client->six.src, &flow->dst);
	return client->four.sport == flow->dport && client->four.src == address_to4(&flow->dst);
}

/* Likewise, by the reverse table. */
static __always_inline struct conn *reply_listed_conn(const struct flow *flow, struct flow *client,
						      union conn_key *key, struct conn *seen,
						      __u8 family, int fast)
{
	struct conn *c;

	if (!reverse_find_in(flow, key, client, family, fast))
		return 0;
	c = conn_look_in(client, key, seen, family);
	return c && reply_is_of(flow, key, seen, family, fast) ? c : 0;
}

/* Likewise, of any sender; but for a connection that is older than the owner. If
 * a client reached one server from one port through two services, the server
 * cannot tell either: replies are the later one's. */
static __always_inline struct conn *reply_conn_in(const struct flow *flow, struct flow *client,
						  const struct reply_owner *owner,
						  union conn_key *key, struct conn *seen,
						  __u8 family, int fast)
{
	struct conn *c = 0;

	if (!owner || owner->shared)
		c = reply_listed_conn(flow, client, key, seen, family, fast);
	return c || !owner ? c : reply_owner_conn(owner, flow, client, key, seen, family, fast);
}

/* Likewise, and for a connection that is older than the owner. */
static __always_inline struct conn *reply_conn_any(const struct flow *flow, struct flow *client,
						   union conn_key *key, struct conn *seen,
						   __u8 family)
{
	const struct reply_owner *owner = reply_owner_of(flow);
	struct conn *c = reply_conn_in(flow, client, owner, key, seen, family, 0);

	return c || !owner ? c : reply_listed_conn(flow, client, key, seen, family, 0);
}

static __noinline struct conn *reply_conn(const struct flow *flow, struct flow *client,
					  struct conn *seen)
{
	union conn_key key;

	return flow->family == AF_INET6 ? reply_conn_any(flow, client, &key, seen, AF_INET6)
					: reply_conn_any(flow, client, &key, seen, AF_INET);
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
