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
#include "flow.h"
#include "pe_sip.h"
#include "persist.h"
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
static __always_inline void call_invalidate(__u32 number, const struct flow *key, __u32 server)
{
	if (conn_disable(key, server, TEMPLATE_INVALID))
		call_unlink(number);
}

/* The server that the call's template has, which the new connection then holds;
 * NO_SERVER if there is none, or none for that server when one is given. */
__noinline __u32 call_use(struct packet *p, __u32 only)
{
	struct settings *set = get_settings();
	struct sip_reader *r = get_sip_reader();
	__u32 *found, number, id;
	struct flow key;
	struct server *s;
	struct conn seen;

	if (!p || !set || !r || p->peek)
		return NO_SERVER;
	found = bpf_map_lookup_elem(&calls, &r->call);
	if (!found)
		return NO_SERVER;
	number = *found;
	call_flow(number, p->flow.family, &key);
	if (!conn_look(&key, &seen))
		return NO_SERVER;
	id = seen.server;
	s = bpf_map_lookup_elem(&servers, &id);
	if (!template_valid(s, set) || (only != NO_SERVER && only != id)) {
		call_invalidate(number, &key, id);
		return NO_SERVER;
	}
	/* It may have expired meanwhile: then there is none. */
	if (!conn_hold(&key, &id, 1))
		return NO_SERVER;
	conn_extend(&key, &seen, seen.timeout * NSEC_PER_SEC, seen.state);
	p->inherited.call = number;
	return id;
}

/* A number for the call: 0 if there is no room. */
static __always_inline __u32 call_name(const struct call *call)
{
	__u32 number = random_u32() | 1;

	if (!bpf_map_update_elem(&call_numbers, &number, call, BPF_NOEXIST))
		return number;
	/* Another call may have it: one of the even ones, then. */
	number = random_u32() << 1 | 1ULL << 31;
	return bpf_map_update_elem(&call_numbers, &number, call, BPF_NOEXIST) ? 0 : number;
}

/* Makes a template for the server, held by the new connection. Returns the server;
 * NO_ROOM; or NO_SERVER if another CPU was first: then call_use finds its template. It is not asked here, for the stack's sake on Linux 6.1. */
__noinline __u32 call_open(struct packet *p, const struct service *svc, __u32 id)
{
	struct server *s = bpf_map_lookup_elem(&servers, &id);
	struct sip_reader *r = get_sip_reader();
	struct conn fresh = {};
	struct flow key;
	__u32 number;

	if (!p || !svc || !s || !r)
		return NO_SERVER;
	number = call_name(&r->call);
	if (!number) {
		p->inherited.call = NO_CALL_NUMBER;
		return NO_ROOM;
	}
	call_flow(number, p->flow.family, &key);
	template_fill(&fresh, svc, id, s);
	if (conn_insert(&key, &fresh, fresh.timeout * NSEC_PER_SEC, 0)) {
		bpf_map_delete_elem(&call_numbers, &number);
		return NO_ROOM;
	}
	template_counted(id, 1);
	follow_tell(&key, &fresh, FOLLOW_OPEN, 0);
	if (bpf_map_update_elem(&calls, &r->call, &number, BPF_NOEXIST)) {
		if (conn_kill(&key, &fresh, 0))
			template_remove(&key, &fresh);
		return NO_SERVER;
	}
	p->inherited.call = number;
	return id;
}

#endif
