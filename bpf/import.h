/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Connections and templates that user space enters (`imbang conns --import`), as a
 * packet would have: counted at their server and their template, with the entry
 * for replies and the hairpin. State and remaining time are given. A
 * template precedes the connections that it controls; it controls none at first.
 *
 * User space holds the director's lock, so the server that it chose stays in its
 * service's list meanwhile. Packets and timers run concurrently.
 */
#ifndef IMBANG_IMPORT_H
#define IMBANG_IMPORT_H

#include "conn_life.h"
#include "counters.h"
#include "persist_call.h"
#include "record.h"

/* Has the connection's template control it: the valid one if that leads to its
 * server, or else the one that was set aside. */
static __noinline int import_hold(const struct flow *flow, const struct control *control)
{
	__u32 server = control->server;
	struct flow key;

	control_key(flow, control, &key);
	if (conn_hold(&key, &server, 1))
		return 1;
	if (control->kind == TEMPLATE_CALL)
		return 0;
	template_set_aside(&key, control->server);
	server = control->server;
	return conn_hold(&key, &server, 1);
}

static __noinline enum record_result import_conn(const struct conn_record *r)
{
	struct control control = record_control(r);
	struct conn fresh = {};
	struct flow flow = r->flow;
	__u32 id = r->server;
	struct server *s = server_far(id);
	struct load *l = load_far(id);
	int rc;

	if (!s || !l || !record_server(r, s))
		return RECORD_NO_SERVER;
	if (conn_exists(&flow) && !conn_settled_away(&flow))
		return RECORD_EXISTS;
	if (control.kind && !import_hold(&flow, &control))
		return RECORD_NO_TEMPLATE;
	record_fresh(r, &fresh);
	if (!counts_active(fresh.state))
		fresh.flags |= CONN_INACTIVE;
	server_bind(s, l, fresh.flags & CONN_INACTIVE);
	load_changed(id);
	rc = conn_enter(&flow, &fresh, s, record_timeout(r), r, 1);
	/* Who removed it at once has reported its end. What others told is reported when it is
	 * noted (backup_entered). */
	if (!record_noted(r) && (!rc || rc == -ENOENT))
		follow_tell(&flow, &fresh, FOLLOW_OPEN, fresh.state);
	if (!rc) {
		if (r->kind == RECORD_NEW)
			count_conn(s->service, id);
		handshake_follow(0, handshake_open(fresh.state, fresh.flags, fresh.forward));
		return RECORD_ENTERED;
	}
	if (conn_withdrawn(rc))
		return r->flags & CONN_HAIRPIN ? RECORD_NO_HAIRPIN : RECORD_NO_ROOM;
	server_unbind(id, fresh.flags & CONN_INACTIVE);
	if (control.kind)
		template_release(&flow, &control);
	return rc == -EEXIST ? RECORD_EXISTS : RECORD_NO_ROOM;
}

/* Whether a call has a template that packets find. One that is over ends. */
static __noinline int import_called(const struct call *call)
{
	__u32 *number = bpf_map_lookup_elem(&calls, call);
	struct flow key;

	if (!number)
		return 0;
	call_flow(*number, call->clients.family, &key);
	template_lapse(&key);
	return !!bpf_map_lookup_elem(&calls, call);
}

static __noinline enum record_result import_template(const struct conn_record *r,
						     const struct call *call)
{
	int of_call = r->template == TEMPLATE_CALL, rc;
	__u32 id = r->server;
	struct server *s = server_far(id);
	struct conn fresh = {};
	struct flow key = r->flow;

	if (!s || !record_server(r, s))
		return RECORD_NO_SERVER;
	if (of_call && r->port != TEMPLATE_INVALID && import_called(call))
		return RECORD_EXISTS;
	if (of_call)
		call_flow(call_name(), r->flow.family, &key);
	record_fresh(r, &fresh);
	fresh.template = TEMPLATE_NONE;
	template_lapse(&key);
	rc = conn_insert(&key, &fresh, record_timeout(r));
	if (rc)
		return rc == -EEXIST ? RECORD_EXISTS : RECORD_NO_ROOM;
	template_counted(id, 1);
	if (of_call)
		rc = call_link(&key, call, &fresh, !record_noted(r));
	else if (!record_noted(r))
		follow_tell(&key, &fresh, FOLLOW_OPEN, 0);
	if (rc)
		return rc == -EEXIST ? RECORD_EXISTS : RECORD_NO_ROOM;
	return RECORD_ENTERED;
}

#endif
