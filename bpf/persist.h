/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Persistence: the clients of a network stay with one server. What remembers
 * it is a template, an entry of the connection table for no packet's flow; it
 * controls the connections made by it, and lives while they do
 * (ip_vs_sched_persist, ip_vs_check_template, ip_vs_conn_expire).
 */
#ifndef IMBANG_PERSIST_H
#define IMBANG_PERSIST_H

#include "conn.h"
#include "sched.h"
#include "story.h"

/* A template whose connections are not over is looked at again after. */
#define TEMPLATE_LINGER (60 * NSEC_PER_SEC)

/* The port of a template that may no longer be used. */
#define TEMPLATE_INVALID 0xffff

/* The key of a template set aside: the server's id (of which there are fewer
 * than 2^24) is in what a template has no use for, so that those of several
 * servers lie side by side. */
static __always_inline void template_set_aside(struct flow *key, __u32 server)
{
	key->dport = TEMPLATE_INVALID;
	key->sport = server;
	key->pad = server >> 16;
}

/* The network of an address under struct service's netmask. */
static __always_inline void address_mask(const union address *a, __u8 family, __be32 netmask,
					 union address *network)
{
	__s32 bits = netmask; /* IPv6: a prefix's length */

	if (family == AF_INET) {
		address_from4(network, address_to4(a) & netmask);
		return;
	}
	network->word[0] = a->word[0] & prefix_word(bits);
	network->word[1] = a->word[1] & prefix_word(bits - 32);
	network->word[2] = a->word[2] & prefix_word(bits - 64);
	network->word[3] = a->word[3] & prefix_word(bits - 96);
}

/* The key of the template that controls a flow. */
static __always_inline void template_flow(const struct flow *flow, __u32 kind, __be32 netmask,
					  __u32 fwmark, struct flow *t)
{
	__builtin_memset(t, 0, sizeof(*t));
	address_mask(&flow->src, flow->family, netmask, &t->src);
	t->template = 1;
	t->family = flow->family;
	if (kind == TEMPLATE_MARK) {
		if (flow->family == AF_INET)
			address_from4(&t->dst, bpf_htonl(fwmark));
		else
			t->dst.word[0] = bpf_htonl(fwmark);
		return;
	}
	t->protocol = flow->protocol;
	t->dst = flow->dst;
	if (kind == TEMPLATE_PORT)
		t->dport = flow->dport;
}

/* What controls a connection: the fields of struct conn that tell. */
struct control {
	__u32 kind; /* enum template_kind */
	__be32 netmask;
	__u32 fwmark;
	__u32 server;
};

static __always_inline struct control control_of(const struct conn *c)
{
	struct control control = {
		.kind = c->template,
		.netmask = c->netmask,
		.fwmark = c->fwmark,
		.server = c->server,
	};

	return control;
}

/* The template that controls a connection: the valid one, if it is of the
 * connection's server, else the one that was made invalid. */
static __always_inline struct conn *template_of(const struct flow *flow,
						const struct control *control, struct flow *key)
{
	struct conn *t;

	template_flow(flow, control->kind, control->netmask, control->fwmark, key);
	t = conn_find(key);
	if (t && t->server == control->server)
		return t;
	template_set_aside(key, control->server);
	return conn_find(key);
}

static __always_inline void template_remove(const struct flow *key, struct conn *t)
{
	__u32 server = t->server;
	struct load *l = bpf_map_lookup_elem(&loads, &server);

	if (conn_kill(t) & CONN_DEAD)
		return;
	if (l)
		__sync_fetch_and_add(&l->persistent, -1);
	conn_forget(key);
}

/* Counts a connection before it is made: a template that has one does not
 * expire meanwhile. */
static __always_inline void template_hold(struct conn *t)
{
	__sync_fetch_and_add(&t->controlled, 1);
}

static __always_inline void template_let_go(struct conn *t)
{
	__sync_fetch_and_add(&t->controlled, -1);
}

/* A connection ends: its template loses it. */
__noinline int template_release(const struct flow *flow, const struct control *control)
{
	struct flow key;
	struct conn *t;

	if (!flow || !control)
		return 0;
	t = template_of(flow, control, &key);
	if (t && t->controlled)
		template_let_go(t);
	return 0;
}

static __always_inline void conn_release(const struct flow *flow, const struct conn *c)
{
	struct control control;

	if (!c->template)
		return;
	control = control_of(c);
	template_release(flow, &control);
}

__noinline int template_assure(const struct flow *flow, const struct control *control)
{
	struct flow key;
	struct conn *t;

	if (!flow || !control)
		return 0;
	t = template_of(flow, control, &key);
	if (t && !(t->flags & CONN_ASSURED)) {
		bpf_spin_lock(&t->lock);
		t->flags |= CONN_ASSURED;
		bpf_spin_unlock(&t->lock);
	}
	return 0;
}

static __always_inline void conn_assure(const struct flow *flow, const struct conn *c)
{
	struct control control;

	if (!c->template)
		return;
	control = control_of(c);
	template_assure(flow, &control);
}

/* The wheel has come to an appointment of this flow: 1 if it is to be kept once
 * more, and was entered for that. */
static __always_inline int conn_appointment(const struct flow *flow, __u32 number, __u64 now)
{
	struct conn *c = conn_find(flow);
	__u64 expires;

	if (!c)
		return 0;
	expires = c->expires;
	if (expires <= now && flow->template && c->controlled) {
		expires = now + TEMPLATE_LINGER;
		c->expires = expires;
		/* From then on, as in Linux, it is the template's own. */
		c->timeout = TEMPLATE_LINGER / NSEC_PER_SEC;
	}
	if (expires <= now)
		goto over;
	/* Of an earlier connection of this flow, or not kept any more. */
	if (c->number != number)
		return 0;
	c->tick = wheel_enter(number, flow->family, wheel_tick_for(expires, now));
	if (c->tick)
		return 1;
	/* Better lost than there for ever. */
over:
	if (flow->template)
		template_remove(flow, c);
	else
		conn_remove(flow, c);
	return 0;
}

/* Sets a template aside whose server is gone; it stays in listings until its
 * connections are over. */
static __always_inline void template_invalidate(const struct flow *key, struct conn *t)
{
	struct conn aside = {};
	struct flow invalid = *key;
	__u32 server = t->server;
	struct load *l;

	aside.flags = conn_kill(t);
	if (aside.flags & CONN_DEAD)
		return;
	aside.controlled = t->controlled;
	aside.server = server;
	aside.port = TEMPLATE_INVALID;
	aside.state = CONN_TEMPLATE;
	template_set_aside(&invalid, server);
	conn_forget(key);
	if (!conn_insert(&invalid, &aside, TEMPLATE_LINGER))
		return; /* counted with its server as before */
	l = bpf_map_lookup_elem(&loads, &server);
	if (l)
		__sync_fetch_and_add(&l->persistent, -1);
}

/* A template for the server that the scheduler chose. */
static __always_inline struct conn *template_create(const struct flow *key,
						    const struct service *svc, __u32 id,
						    const struct server *s)
{
	struct load *l = bpf_map_lookup_elem(&loads, &id);
	struct conn fresh = {};

	fresh.server = id;
	/* A template for every port leads to every port. */
	fresh.port = svc->template == TEMPLATE_PORT ? s->port : 0;
	fresh.state = CONN_TEMPLATE;
	/* Editing the service changes only later templates. */
	fresh.timeout = svc->timeout;
	if (!conn_insert(key, &fresh, svc->timeout * NSEC_PER_SEC) && l)
		__sync_fetch_and_add(&l->persistent, 1);
	/* Another CPU may have been first. */
	return conn_find(key);
}

/* ip_vs_check_template: whether it may still lead to its server. */
static __always_inline int template_valid(const struct server *s, const struct settings *set)
{
	if (!s || !(s->flags & SERVER_AVAILABLE))
		return 0;
	return s->weight || !(set->expire_quiescent_template || set->drain_timeout);
}

static __always_inline void template_told(const struct conn *t, struct answer *answer)
{
	answer->template_expires = t->expires;
	answer->controlled = t->controlled;
}

/* The server that a template of a persistent service has for a new connection,
 * which then holds the template; NO_SERVER if there is none. */
__noinline __u32 template_use(const struct packet *p, const struct service *svc)
{
	struct settings *set = get_settings();
	struct flow key;
	struct server *s;
	struct conn *t;
	__u32 id;

	if (!p || !svc || !set)
		return NO_SERVER;
	template_flow(&p->flow, svc->template, svc->netmask, svc->fwmark, &key);
	t = conn_find(&key);
	if (!t)
		return NO_SERVER;
	id = t->server;
	s = bpf_map_lookup_elem(&servers, &id);
	if (p->peek) {
		struct answer *answer = story_of(p);

		if (!answer || !template_valid(s, set))
			return NO_SERVER;
		template_told(t, answer);
		return id;
	}
	if (template_valid(s, set)) {
		template_hold(t);
		conn_extend(&key, t, t->timeout * NSEC_PER_SEC);
		return id;
	}
	template_invalidate(&key, t);
	return NO_SERVER;
}

/* Makes a template for the server that was scheduled, held by the new
 * connection. Returns the server, which is another one if another CPU was
 * first; NO_SERVER if there is no room. */
__noinline __u32 template_open(const struct packet *p, const struct service *svc, __u32 id)
{
	struct server *s = bpf_map_lookup_elem(&servers, &id);
	struct flow key;
	struct conn *t;

	if (!p || !svc || !s)
		return NO_SERVER;
	template_flow(&p->flow, svc->template, svc->netmask, svc->fwmark, &key);
	t = template_create(&key, svc, id, s);
	if (!t)
		return NO_SERVER;
	template_hold(t);
	return t->server;
}

#endif
