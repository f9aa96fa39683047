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

/* A template whose connections are not over is looked at again after. */
#define TEMPLATE_LINGER (60 * NSEC_PER_SEC)

/* The port of a template that may no longer be used. */
#define TEMPLATE_INVALID 0xffff

/* The key of a template set aside: the server's id is in what a template has
 * no use for, so that those of several servers lie side by side. */
static __always_inline void template_set_aside(struct flow4 *key, __u32 server)
{
	key->dport = TEMPLATE_INVALID;
	key->sport = server;
	key->pad = server >> 16;
}

/* The key of the template that controls a flow. */
static __always_inline void template_flow(const struct flow4 *flow, __u32 kind, __u32 prefix_len,
					  __u32 fwmark, struct flow4 *t)
{
	__builtin_memset(t, 0, sizeof(*t));
	t->src = prefix_len && prefix_len <= 32
			 ? flow->src & bpf_htonl(0xffffffffU << (32 - prefix_len))
			 : 0;
	t->template = 1;
	if (kind == TEMPLATE_MARK) {
		t->dst = bpf_htonl(fwmark);
		return;
	}
	t->protocol = flow->protocol;
	t->dst = flow->dst;
	if (kind == TEMPLATE_PORT)
		t->dport = flow->dport;
}

/* The template that controls a connection: the valid one, if it is of the
 * connection's server, else the one that was made invalid. */
static __always_inline struct conn *template_of(const struct flow4 *flow, const struct conn *c,
						struct flow4 *key)
{
	struct conn *t;

	template_flow(flow, c->template, c->prefix_len, c->fwmark, key);
	t = bpf_map_lookup_elem(&conns4, key);
	if (t && t->server == c->server)
		return t;
	template_set_aside(key, c->server);
	return bpf_map_lookup_elem(&conns4, key);
}

static __always_inline void template_remove(struct flow4 *key, struct conn *t)
{
	__u32 server = t->server;
	struct load *l = bpf_map_lookup_elem(&loads, &server);

	if (conn_kill(t) & CONN_DEAD)
		return;
	if (l)
		__sync_fetch_and_add(&l->persistent, -1);
	bpf_map_delete_elem(&conns4, key);
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
static __noinline void template_release(const struct flow4 *flow, const struct conn *c)
{
	struct flow4 key;
	struct conn *t = template_of(flow, c, &key);

	if (t && t->controlled)
		template_let_go(t);
}

static __always_inline void conn_release(const struct flow4 *flow, const struct conn *c)
{
	if (c->template)
		template_release(flow, c);
}

static __noinline void template_assure(const struct flow4 *flow, const struct conn *c)
{
	struct flow4 key;
	struct conn *t = template_of(flow, c, &key);

	if (t && !(t->flags & CONN_ASSURED)) {
		bpf_spin_lock(&t->lock);
		t->flags |= CONN_ASSURED;
		bpf_spin_unlock(&t->lock);
	}
}

static __always_inline void conn_assure(const struct flow4 *flow, const struct conn *c)
{
	if (c->template)
		template_assure(flow, c);
}

/* The wheel has come to an appointment of this flow. */
static __always_inline void conn_appointment(struct flow4 *flow, __u32 tick, __u64 now)
{
	struct conn *c = bpf_map_lookup_elem(&conns4, flow);
	__u32 number = 0;
	__u64 expires;

	if (!c)
		return;
	expires = c->expires;
	if (expires <= now && flow->template && c->controlled) {
		expires = now + TEMPLATE_LINGER;
		c->expires = expires;
		/* From then on, as in Linux, it is the template's own. */
		c->timeout = TEMPLATE_LINGER / NSEC_PER_SEC;
	}
	if (expires <= now)
		goto over;
	/* Another appointment, of an earlier time, or of an earlier connection
	 * of this flow: not ours to keep. A late clock may come to ours when the
	 * wheel has not been round yet. */
	if ((__s32)(c->tick - tick) > 0 && (c->tick ^ tick) & (WHEEL_SLOTS - 1))
		return;
	c->tick = wheel_appoint(flow, expires, now, &number);
	c->number = number;
	if (c->tick)
		return;
	/* Better lost than there for ever. */
over:
	if (flow->template)
		template_remove(flow, c);
	else
		conn_remove(flow, c);
}

/* Sets a template aside whose server is gone; it stays in listings until its
 * connections are over. */
static __always_inline void template_invalidate(struct flow4 *key, struct conn *t)
{
	struct conn aside = {};
	struct flow4 invalid = *key;
	__u32 server = t->server;
	struct load *l;

	aside.flags = conn_kill(t);
	if (aside.flags & CONN_DEAD)
		return;
	aside.controlled = t->controlled;
	aside.addr = t->addr;
	aside.server = server;
	aside.port = TEMPLATE_INVALID;
	aside.state = CONN_TEMPLATE;
	template_set_aside(&invalid, server);
	wheel_cancel(key, t->tick, t->number);
	bpf_map_delete_elem(&conns4, key);
	if (conn_insert(&invalid, &aside, TEMPLATE_LINGER))
		return; /* counted with its server as before */
	l = bpf_map_lookup_elem(&loads, &server);
	if (l)
		__sync_fetch_and_add(&l->persistent, -1);
}

/* A template for the server that the scheduler chose. */
static __always_inline struct conn *template_create(const struct flow4 *key,
						    const struct service *svc, __u32 id,
						    const struct server *s)
{
	struct load *l = bpf_map_lookup_elem(&loads, &id);
	struct conn fresh = {}, *t;

	fresh.addr = s->addr;
	fresh.server = id;
	/* A template for every port leads to every port. */
	fresh.port = svc->template == TEMPLATE_PORT ? s->port : 0;
	fresh.state = CONN_TEMPLATE;
	/* Editing the service changes only later templates. */
	fresh.timeout = svc->timeout;
	t = conn_insert(key, &fresh, svc->timeout * NSEC_PER_SEC);
	if (t && l)
		__sync_fetch_and_add(&l->persistent, 1);
	/* Another CPU may have been first. */
	return t ? t : bpf_map_lookup_elem(&conns4, key);
}

/*
 * The server of a persistent service's new connection: its template's, else
 * the scheduler's choice, which then makes a template. *found is the template,
 * held for the connection; NULL if there was no room for one.
 */
static __always_inline __u32 persist_pick(const struct packet *p, const struct service *svc,
					  struct pick *pick, struct conn **found)
{
	struct flow4 key;
	struct server *s;
	struct conn *t;
	__u32 id;

	template_flow(&p->flow, svc->template, svc->prefix_len, svc->fwmark, &key);
	t = bpf_map_lookup_elem(&conns4, &key);
	if (t) {
		id = t->server;
		s = bpf_map_lookup_elem(&servers, &id);
		if (s && s->flags & SERVER_AVAILABLE) {
			template_hold(t);
			conn_extend(&key, t, t->timeout * NSEC_PER_SEC);
			*found = t;
			return id;
		}
		template_invalidate(&key, t);
	}
	id = schedule(pick, svc->scheduler);
	s = bpf_map_lookup_elem(&servers, &id);
	if (id == NO_SERVER || !s)
		return NO_SERVER;
	t = template_create(&key, svc, id, s);
	*found = t;
	if (!t)
		return id;
	template_hold(t);
	/* Who was first on another CPU decides. */
	return t->server;
}

#endif
