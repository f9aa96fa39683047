/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reports the opening, the changes of state and the end of connections and of
 * templates to followers, who each have a rule, a ring and a lease, as tracers have.
 * Unlike tracing it leaves the fast path on, and it reports of table entries, not of
 * packets: a connection by itself (one-packet scheduling) has no entry and is not
 * reported.
 *
 * The order of events in a ring is that in which room for them was reserved. For a
 * connection A and the next one of its flow, A':
 * 1. An end is reported after the entry was marked as dead, and before it is deleted.
 *    While it is dead no entry of the flow can be inserted, so A's end comes before
 *    every event of A'.
 * 2. A change of state reads the entry after its room was reserved, and is discarded
 *    if the entry is dead or another's by then. So it comes before A's end, and says
 *    what the entry was at that moment, which includes what other CPUs did before.
 * 3. An opening reads it likewise. If the entry is dead or another's, the event says
 *    what was inserted, and `over`: then, and only then, A's end may come first.
 * 4. Each entry that was completed has one opening and one end. One that could not be
 *    completed (no room for its replies' entry) was in the table for a moment and has
 *    neither.
 * Not promised: between CPUs, a change of state may come before the opening of its
 * connection, and `was` may differ from the state that the event before reported. A
 * reader that enters what it does not know, and deletes at the end, has the table's
 * content, unless events were lost; the count of those says so.
 *
 * The frames of follow_tell and its callback together are not greater than those of
 * load_changed and what that calls (160 bytes), which stand at the same depth: Linux 6.1
 * has 512 bytes for all frames of a chain of calls.
 */
#ifndef IMBANG_FOLLOW_H
#define IMBANG_FOLLOW_H

#include "by_id.h"
#include "clock.h"
#include "conn_entry.h"
#include "flow.h"
#include "maps.h"

/* What is reported. */
struct following {
	const struct flow *flow;
	const struct conn *given; /* what was inserted, or killed; 0: neither */
	struct conn *conn;        /* the entry; of an end it is dead */
	struct server *server;
	__u64 time; /* [ns] */
	__u32 id;   /* of the server */
	__u32 hash; /* of the flow */
	__u8 kind;  /* enum follow_kind */
	__u8 was;   /* enum conn_state */
};

static __always_inline int followed(void)
{
	return listened(LISTENERS_FOLLOW);
}

/* Whether it is of the service that a follower asks for. */
static __always_inline int follow_service(const struct follower *who,
					  const struct service_key *service)
{
	if (!who->service.family)
		return 1;
	if (who->service.fwmark)
		return who->service.fwmark == service->fwmark;
	return who->service.family == service->family &&
	       (who->every_port || who->service.port == service->port) &&
	       address_equal(&who->service.addr, &service->addr);
}

/* Whether a follower's rule includes it. */
static __always_inline int follow_wanted(const struct follower *who, const struct following *f,
					 __u8 protocol, __u8 template)
{
	if (who->until < f->time || !(who->kinds & f->kind))
		return 0;
	if (who->protocol && who->protocol != protocol)
		return 0;
	if (who->entries && who->entries != (template ? FOLLOW_TEMPLATES : FOLLOW_CONNECTIONS))
		return 0;
	return follow_service(who, &f->server->owner);
}

/* Copies what an entry says. */
static __always_inline void follow_copy(struct follow_event *e, const struct conn *c)
{
	__u64 word = *(const volatile __u64 *)((const void *)c + CONN_WORD);

	__builtin_memcpy(&e->port, &word, 8);
	e->server = c->server;
	e->controlled = c->controlled;
	e->timeout = c->timeout;
	e->expires = c->expires;
}

/* Fills an event in: 0 if it is not to be reported. */
static __always_inline int follow_fill(struct follow_event *e, const struct following *f)
{
	__u64 was = f->conn ? entry_expires(f->conn) : 0;
	int over = 1;

	if (f->conn && f->kind != FOLLOW_CLOSE) {
		barrier();
		follow_copy(e, f->conn);
		barrier();
		over = e->flags & CONN_DEAD || e->server != f->id || f->conn->hash != f->hash ||
		       (was ^ entry_expires(f->conn)) & INCARNATION;
	}
	if (over) {
		if (!f->given)
			return 0;
		follow_copy(e, f->given);
	}
	e->flow = *f->flow;
	e->time = f->time;
	e->addr = f->server->addr;
	e->service = f->server->owner;
	e->service_id = f->server->service;
	e->kind = f->kind;
	e->was = f->was;
	e->over = over && f->kind == FOLLOW_OPEN;
	e->replica = f->conn && told_untouched(f->conn);
	e->server_port = f->server->port;
	__builtin_memset(e->pad, 0, sizeof(e->pad));
	if (e->state == CONN_TEMPLATE)
		e->forward = f->server->forward;
	return 1;
}

/* The call whose template ends; 0: it is none. It is forgotten before readers could look for
 * it, and so is told with the event. */
static __always_inline struct call *follow_call(const struct following *f)
{
	__u32 number;

	if (f->kind != FOLLOW_CLOSE || f->flow->protocol != CALL_PROTOCOL)
		return 0;
	number = address_to4(&f->flow->src);
	return bpf_map_lookup_elem(&call_numbers, &number);
}

static long follow_one(__u32 number, struct following *f)
{
	struct follower *who = bpf_map_lookup_elem(&followers, &number);
	void *ring = bpf_map_lookup_elem(&follow_rings, &number);
	struct follow_event *e;
	struct call *call;
	__u64 *lost;

	if (!who || !ring || !follow_wanted(who, f, f->flow->protocol, f->flow->template))
		return 0;
	call = follow_call(f);
	e = call ? bpf_ringbuf_reserve(ring, sizeof(struct follow_call_event), 0)
		 : bpf_ringbuf_reserve(ring, sizeof(*e), 0);
	if (!e) {
		number += TRACERS;
		lost = bpf_map_lookup_elem(&unheard, &number);
		if (lost)
			__sync_fetch_and_add(lost, 1);
		return 0;
	}
	if (call)
		__builtin_memcpy(&((struct follow_call_event *)e)->call, call, sizeof(*call));
	if (follow_fill(e, f))
		bpf_ringbuf_submit(e, 0);
	else
		/* Wakes the reader, too: if its position is here, later events do not. */
		bpf_ringbuf_discard(e, 0);
	return 0;
}

/* Reports of a flow's entry, if anybody follows. `given`: of an opening and an end. */
__noinline int follow_tell(const struct flow *flow, const struct conn *given, __u32 kind, __u32 was)
{
	struct following f = { .flow = flow, .given = given, .kind = kind, .was = was };
	__u32 index;

	if (!flow || !followed())
		return 0;
	index = entry_search(flow, &f.hash);
	f.conn = index ? line_of(index, 1) : 0;
	if (given)
		f.id = given->server;
	else if (f.conn)
		f.id = f.conn->server;
	else
		return 0;
	f.server = server_far(f.id);
	if (!f.server)
		return 0;
	f.time = now_ns();
	bpf_loop(FOLLOWERS, follow_one, &f, 0);
	return 0;
}

/* The same of a change of state, of a key: the fast path has nothing else. */
__noinline int follow_state4(const struct flow4 *key, __u32 was)
{
	struct scratch *room = get_scratch(SCRATCH_PACKET);

	if (!key || !room || !followed())
		return 0;
	flow_from4(key, &room->flow);
	return follow_tell(&room->flow, 0, FOLLOW_STATE, was);
}

#endif
