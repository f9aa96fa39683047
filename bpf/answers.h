/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which connection a server's packet answers.
 *
 * A connection lies under its client's flow. An answer has the client in it, and
 * the server in place of the service; so the service is all that is missing.
 * The address and port of nearly every server serve one virtual address and
 * port: they say which (`fronts`), and the connection needs no entry for its
 * answers. Others have one in the reverse table: of further services with the
 * same server, of firewall marks, of other ports than the service's own, and
 * hairpins.
 */
#ifndef IMBANG_ANSWERS_H
#define IMBANG_ANSWERS_H

#include "flow.h"

/* Whether the server's answers come through the director. */
static __always_inline int answers_here(__u8 forward)
{
	return forward == FORWARD_MASQ;
}

/* Whether answers do, or one did. */
static __always_inline int answers_seen(const struct conn *c)
{
	return answers_here(c->forward) || c->flags & CONN_ANSWERED;
}

/* What a packet's sender stands for; NULL if that is not one service. */
static __always_inline struct front *front_of(const struct flow *flow)
{
	struct endpoint at = {};

	at.addr = flow->src;
	at.port = flow->sport;
	at.protocol = flow->protocol;
	return bpf_map_lookup_elem(&fronts, &at);
}

/* The connection that a packet of such a sender answers, and its client's flow. */
static __always_inline struct conn *front_answered(const struct front *front,
						   const struct flow *flow, struct flow *client,
						   __u8 family)
{
	__u32 id = front->server;
	struct server *s = bpf_map_lookup_elem(&servers, &id);
	struct conn *c;

	if (!s || !address_equal(&s->addr, &flow->src))
		return 0;
	client->src = flow->dst;
	client->dst = s->owner.addr;
	client->sport = flow->dport;
	client->dport = s->owner.port;
	client->protocol = flow->protocol;
	client->template = 0;
	client->family = family;
	client->pad = 0;
	c = conn_find_in(client, family);
	if (!c || c->server != id || c->port != flow->sport)
		return 0;
	return answers_here(c->forward) && !(c->flags & CONN_HAIRPIN) ? c : 0;
}

/* Likewise, of any sender; but for a connection that is older than the front. If
 * a client reached one server from one port through two services, the server
 * cannot tell either: answers are the later one's. */
static __always_inline struct conn *answered_in(const struct flow *flow, struct flow *client,
						const struct front *front, __u8 family)
{
	struct conn *c = 0;

	if ((!front || front->shared) && reverse_find_in(flow, client, family))
		c = conn_find_in(client, family);
	return c || !front ? c : front_answered(front, flow, client, family);
}

static __noinline struct conn *answered(const struct flow *flow, struct flow *client)
{
	const struct front *front = front_of(flow);
	struct conn *c;

	c = flow->family == AF_INET6 ? answered_in(flow, client, front, AF_INET6)
				     : answered_in(flow, client, front, AF_INET);
	return !c && front && reverse_find(flow, client) ? conn_find(client) : c;
}

/* Whether a connection that is to be needs an entry for its answers: they are not
 * known by their sender. A hairpin has one already. */
static __always_inline int answers_listed(const struct flow *flow, const struct conn *c,
					  const struct server *s)
{
	if (!answers_here(c->forward) || c->flags & CONN_HAIRPIN)
		return 0;
	return !(s->flags & SERVER_FRONTS) || c->port != s->port || flow->dport != s->owner.port ||
	       !address_equal(&flow->dst, &s->owner.addr);
}

/* Enters where the answers of a flow lead, as of others than the sender's one
 * service: 0, or an error. */
static __noinline long reverse_enter(const struct flow *reverse, const struct flow *client,
				     __u64 flags)
{
	struct front *front = front_of(reverse);
	__u32 zero = 0, *ever = bpf_map_lookup_elem(&listed, &zero);

	if (front && !front->shared)
		front->shared = 1;
	if (ever && !*ever)
		*ever = 1;
	return reverse_put(reverse, client, flags);
}

/* Answers of a flow are those of a connection without an entry now; another's, older
 * one is in the way. */
static __always_inline void reverse_clear(const struct flow *reverse)
{
	__u32 zero = 0, *ever = bpf_map_lookup_elem(&listed, &zero);

	if (ever && *ever)
		reverse_forget(reverse);
}

#endif
