/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Templates of calls: as persist.h, for a service with an engine. The call is
 * the one that this CPU's reader has.
 */
#ifndef IMBANG_PERSIST_CALL_H
#define IMBANG_PERSIST_CALL_H

#include "kernel.h"
#include "call.h"
#include "conn.h"
#include "element.h"
#include "flow.h"
#include "pe_sip.h"
#include "persist.h"
#include "removal.h"
#include "rng.h"
#include "settings.h"
#include "template.h"

/* Whether a service's templates are identified by calls. */
static __always_inline int by_call(const struct service *svc)
{
	return svc->template && svc->engine;
}

/* A template may no longer be used: packets do not find it, and it stays in
 * listings, with its number, until its time is over. */
static __always_inline void call_invalidate(const struct flow *key, __u32 server)
{
	/* If that fails, the next packet that finds the template tries again. */
	if (conn_disable(key, server, TEMPLATE_INVALID))
		(void)call_unlink(key);
}

/* The server that the call's template has, which the new connection then holds;
 * NO_SERVER if there is none, or none for that server when one is given. */
__noinline __u32 call_use(struct packet *p, __u32 only)
{
	struct scratch *room = get_scratch(SCRATCH_PACKET);
	struct settings *set = get_settings();
	__u32 *found, number, id;
	struct flow key;
	struct server *s;
	struct conn seen = {};

	if (!p || !room || p->peek)
		return NO_SERVER;
	found = bpf_map_lookup_elem(&calls, &room->sip.call);
	if (!found)
		return NO_SERVER;
	number = *found;
	call_flow(number, p->flow.family, &key);
	if (!conn_look(&key, &seen)) {
		if (seen.index) /* it is over */
			template_lapse(&key);
		return NO_SERVER;
	}
	id = seen.server;
	s = server_far(id);
	if (!template_valid(s, set) || (only != NO_SERVER && only != id)) {
		call_invalidate(&key, id);
		return NO_SERVER;
	}
	/* It may have expired meanwhile: then there is none. */
	if (!conn_hold(&key, &id, 1))
		return NO_SERVER;
	conn_extend(&seen, seen.timeout * NSEC_PER_SEC);
	p->inherited.call = number;
	return id;
}

/* A number that no call has. */
static __noinline __u32 call_name(void)
{
	__u32 number = random_u32() | 1;

	if (!bpf_map_lookup_elem(&call_numbers, &number))
		return number;
	/* One of the even ones, then. */
	return random_u32() << 1 | 1ULL << 31;
}

/* Leads from a call to its template, which is in the table and counted, and back: 0, or an
 * error, and the template is removed. Its opening is reported when readers can look the call
 * up, and before a connection holds it. */
static __noinline long call_link(const struct flow *key, const struct call *call,
				 struct conn *fresh, int report)
{
	__u32 number = call_number(key);
	long rc = map_update(call_numbers, &number, call, BPF_NOEXIST);

	if (report)
		follow_tell(key, fresh, FOLLOW_OPEN, 0);
	if (!rc && fresh->port != TEMPLATE_INVALID)
		rc = map_update(calls, call, &number, BPF_NOEXIST);
	if (rc && conn_kill(key, fresh, 0)) {
		if (report)
			follow_tell(key, fresh, FOLLOW_CLOSE, 0);
		entry_drop(key, fresh);
	}
	return rc;
}

/* Makes a template for the server, held by the new connection. Returns the server;
 * NO_SERVER if there is no room, or another CPU was first: then call_use finds its
 * template. It is not asked here, for the stack's sake on Linux 6.1. */
__noinline __u32 call_open(struct packet *p, const struct service *svc, __u32 id)
{
	struct server *s = server_far(id);
	struct conn fresh = {};
	struct scratch *room;
	struct flow key;
	long rc;

	if (!p || !svc || !s)
		return NO_SERVER;
	call_flow(call_name(), p->flow.family, &key);
	template_fill(&fresh, svc, id, s);
	rc = conn_insert(&key, &fresh, fresh.timeout * NSEC_PER_SEC);
	p->inherited.full = rc == -E2BIG ? FULL_TABLE : FULL_NONE;
	if (rc)
		return NO_SERVER;
	template_counted(id, 1);
	p->inherited.template = fresh.index;
	room = get_scratch(SCRATCH_PACKET); /* always there; here for the stack's sake */
	rc = room ? call_link(&key, &room->sip.call, &fresh, 1) : -ENOENT;
	p->inherited.full = rc == -E2BIG ? FULL_CALLS : FULL_NONE;
	p->inherited.call = call_number(&key);
	return rc ? NO_SERVER : id;
}

#endif
