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
#include "hook.h"
#include "removal.h"
#include "story.h"
#include "template.h"

/* Another CPU that removes a template is soon done. */
#define TEMPLATE_TRIES 64

/* More than there are connections. */
#define TEMPLATE_MOVING (1 << 30)

/* The template that takes over the connections of one whose server is gone: inserted,
 * or there already. It counts TEMPLATE_MOVING connections more than it has. `t` is what
 * the other one was, and room: the stack has little. */
static __always_inline int template_aside(const struct flow *key, struct conn *t)
{
	t->controlled = TEMPLATE_MOVING;
	t->port = TEMPLATE_INVALID;
	t->flags = 0;
	t->index = 0;
	if (!conn_insert(key, t, TEMPLATE_LINGER)) {
		template_counted(t->server, 1);
		follow_tell(key, t, FOLLOW_OPEN, 0);
		return 1;
	}
	return conn_hold(key, &t->server, TEMPLATE_MOVING);
}

/*
 * Sets a template aside whose server is gone; it stays in listings until its
 * connections are over. Each connection that ends meanwhile finds either template:
 * the new one is there before the old one dies, and counts enough for all of them. Without
 * room for it the old one stays.
 */
static __noinline void template_invalidate(const struct flow *key, struct conn *t)
{
	struct flow invalid = *key;
	__s32 moved = 0;

	template_set_aside(&invalid, t->server);
	if (!template_aside(&invalid, t))
		return;
	HOOK(TEMPLATE_INVALIDATE);
	if (conn_kill(key, t, 0)) {
		moved = t->controlled;
		entry_remove(key, t);
		if (t->flags & CONN_ASSURED)
			conn_mark(&invalid, t->server, CONN_ASSURED);
	}
	conn_hold(&invalid, &t->server, moved - TEMPLATE_MOVING);
}

/* ip_vs_check_template: whether it may still lead to its server. */
static __always_inline int template_valid(const struct server *s, const struct settings *set)
{
	if (!s || !(s->flags & SERVER_AVAILABLE))
		return 0;
	return s->weight || !(s->flags & SERVER_DRAINING || set->expire_quiescent_template ||
			      set->drain_timeout);
}

static __always_inline void template_told(const struct conn *t, struct explanation *explanation)
{
	explanation->template_expires = t->expires;
	explanation->controlled = t->controlled;
}

/* The server that a template of a persistent service has for a new connection,
 * which then holds the template; NO_SERVER if there is none. */
__noinline __u32 template_use(const struct packet *p, const struct service *svc)
{
	struct settings *set = get_settings();
	struct flow key;
	struct server *s;
	struct conn seen = {};
	__u32 id;

	if (!p || !svc)
		return NO_SERVER;
	template_flow(&p->flow, svc->template, svc->netmask, svc->fwmark, &key);
	if (!conn_look(&key, &seen)) {
		if (seen.index && !p->peek) /* it is over */
			template_lapse(&key);
		return NO_SERVER;
	}
	id = seen.server;
	s = server_far(id);
	if (p->peek) {
		struct explanation *explanation = story_of(p);

		if (!explanation || !template_valid(s, set))
			return NO_SERVER;
		template_told(&seen, explanation);
		return id;
	}
	if (!template_valid(s, set)) {
		template_invalidate(&key, &seen);
		return NO_SERVER;
	}
	HOOK(TEMPLATE_HOLD);
	/* It may have expired meanwhile: then there is none. */
	if (!conn_hold(&key, &id, 1)) {
		template_lapse(&key);
		return NO_SERVER;
	}
	conn_extend(&seen, seen.timeout * NSEC_PER_SEC);
	return id;
}

/* A template for a server, held by one connection. */
static __always_inline void template_fill(struct conn *fresh, const struct service *svc, __u32 id,
					  const struct server *s)
{
	fresh->server = id;
	/* A template for every port leads to every port. */
	fresh->port = svc->template == TEMPLATE_PORT ? s->port : 0;
	fresh->state = CONN_TEMPLATE;
	fresh->flags = CONN_UNPROVEN;
	/* Editing the service changes only later templates. */
	fresh->timeout = svc->timeout;
	fresh->controlled = 1;
}

struct template_opening {
	struct flow key;
	struct conn fresh;
	__u32 server; /* of the template that is held; NO_SERVER: none is */
	int full;
};

/* 1 if a template is held, or cannot be. */
static long template_try_open(__u32 i, struct template_opening *o)
{
	struct conn fresh = o->fresh;
	__u32 server = NO_SERVER;
	int rc = conn_insert(&o->key, &fresh, fresh.timeout * NSEC_PER_SEC);

	if (!rc) {
		template_counted(fresh.server, 1);
		follow_tell(&o->key, &fresh, FOLLOW_OPEN, 0);
		o->server = fresh.server;
		o->fresh.index = fresh.index;
		return 1;
	}
	o->full = rc == -E2BIG;
	if (rc != -EEXIST)
		return 1;
	HOOK(TEMPLATE_OPEN);
	if (!conn_hold(&o->key, &server, 1))
		return 0; /* it is being removed */
	o->server = server;
	return 1;
}

/* Makes a template for the server that was scheduled, held by the new
 * connection. Returns the server, which is another one if another CPU was
 * first; NO_SERVER if there is no room. */
__noinline __u32 template_open(struct packet *p, const struct service *svc, __u32 id)
{
	struct template_opening o = { .server = NO_SERVER };
	struct server *s = server_far(id);

	if (!p || !svc || !s)
		return NO_SERVER;
	template_flow(&p->flow, svc->template, svc->netmask, svc->fwmark, &o.key);
	template_fill(&o.fresh, svc, id, s);
	bpf_loop(TRIES(TEMPLATE_TRIES), template_try_open, &o, 0);
	p->inherited.full = o.full ? FULL_TABLE : FULL_NONE;
	p->inherited.template = o.fresh.index;
	return o.server;
}

#endif
