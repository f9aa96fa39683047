/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Servers that send first: a datagram of a server of a service with an engine
 * opens a connection to the client that it goes to, in the service's name
 * (ip_vs_sip_conn_out, ip_vs_new_conn_out). `outbound` says which servers do.
 */
#ifndef IMBANG_OUTBOUND_H
#define IMBANG_OUTBOUND_H

#include "kernel.h"
#include "address.h"
#include "conn_life.h"
#include "counters.h"
#include "find.h"
#include "load.h"
#include "persist_call.h"
#include "reply_side.h"
#include "sched.h"
#include "schedule.h"
#include "scratch.h"
#include "service.h"
#include "settings.h"

/* The server that such a packet is of; NO_SERVER if it is none's. */
static __noinline __u32 outbound_server(const struct flow *flow)
{
	struct endpoint at = {};
	__u32 *id;

	at.addr = flow->src;
	at.port = flow->sport;
	at.protocol = flow->protocol;
	id = bpf_map_lookup_elem(&outbound, &at);
	return id ? *id : NO_SERVER;
}

/* A copy of the service that a server may send first for; NULL if none. No other
 * packet's copy is needed on this CPU any more. */
static __noinline struct service *outbound_service(const struct server *s)
{
	struct service_key key __attribute__((aligned(8))) = s->owner;
	struct service *svc = bpf_map_lookup_elem(&services, &key), *copy;
	struct scratch *room = get_scratch(SCRATCH_PACKET);

	if (!svc || !room)
		return 0;
	copy = &room->service;
	if (!service_copy(&key, svc, copy))
		return 0;
	return copy->engine && copy->id == s->service ? copy : 0;
}

/* The connection, entered under the client's flow: 0, or not. */
static __always_inline int outbound_enter(struct packet *p, struct conn *fresh,
					  const struct server *s, struct load *l,
					  const struct settings *set)
{
	__u32 id = fresh->server;
	int rc;

	conn_begin(p, fresh, set);
	fresh->in_packets = 0;
	fresh->flags &= ~CONN_UNPROVEN; /* a server of ours began it */
	server_bind(s, l, 1);
	load_changed(id);
	rc = conn_create(p, fresh, s, set, 0);
	if (rc && !conn_withdrawn(rc))
		server_unbind(id, fresh->flags & CONN_INACTIVE);
	return rc;
}

/* A packet that is a connection by itself. */
static __always_inline int outbound_alone(struct packet *p, const struct conn *fresh,
					  const struct server *s, struct load *l)
{
	__u32 id = fresh->server;

	server_bind(s, l, 1);
	server_unbind(id, 1);
	conn_assure(&p->flow, fresh);
	conn_release(&p->flow, fresh);
	count_out(p, id);
	p->news |= NEWS_OPENED;
	p->from_server = 1;
	p->server = id;
	p->forward = fresh->forward;
	p->port = p->flow.dport;
	p->to = p->flow.dst;
	return TO_CLIENT;
}

/* Opens the connection. The packet's flow is the client's. TO_CLIENT if the packet
 * is all of it, UNDECIDED if it is now to be found in the table, or a verdict. */
__noinline int outbound_open(struct packet *p, const struct service *svc, __u32 id)
{
	struct server *s = server_far(id);
	struct load *l = load_far(id);
	struct settings *set = get_settings();
	struct conn fresh = {};
	int rc;

	if (!p || !svc || !s || !l)
		return VERDICT_DROP;
	fresh.server = id;
	fresh.port = s->port;
	fresh.forward = s->forward;
	if (svc->template) {
		fresh.template = TEMPLATE_CALL;
		fresh.fwmark = p->inherited.call;
	}
	if (svc->flags & SVC_ONE_PACKET) {
		count_conn(svc->id, id);
		return outbound_alone(p, &fresh, s, l);
	}
	rc = outbound_enter(p, &fresh, s, l, set);
	if (!rc) {
		count_conn(svc->id, id);
		return UNDECIDED;
	}
	if (!conn_withdrawn(rc))
		conn_release(&p->flow, &fresh);
	return drop(p, REASON_DROP_TABLE_FULL);
}

/* The template of a call that a server begins leads to that server: 0, or not if the
 * packet has no Call-ID, or there is no room. */
static __always_inline int outbound_template(struct __sk_buff *skb, struct packet *p,
					     const struct service *svc, __u32 id)
{
	__u32 got;

	if (call_read(skb, p, svc))
		return -1;
	got = call_use(p, id);
	if (got == NO_SERVER)
		got = call_open(p, svc, id);
	return got == id ? 0 : -1;
}

/* The client may have a connection to another server: a flow has one. */
static __noinline void outbound_replace(const struct flow *flow)
{
	struct conn seen = {};

	if (conn_look(flow, &seen) && conn_kill(flow, &seen, 0))
		conn_remove(flow, &seen);
}

/* Likewise, of a packet that may be such a server's. */
static __always_inline int outbound_find(struct __sk_buff *skb, struct packet *p)
{
	__u32 id = p ? outbound_server(&p->flow) : NO_SERVER;
	struct server *s = server_far(id);
	int decision = VERDICT_PASS;
	struct service *svc;

	if (!p || !s || !(s->flags & SERVER_AVAILABLE))
		return VERDICT_PASS;
	/* An edit may be about to give the id to another. */
	if (!address_equal(&s->addr, &p->flow.src) || s->port != p->flow.sport)
		return VERDICT_PASS;
	svc = outbound_service(s);
	if (!svc)
		return VERDICT_PASS;
	if (!from_side_of(skb, p, &p->flow.src, id))
		return drop(p, REASON_DROP_REVERSE_PATH);
	p->flow.src = p->flow.dst;
	p->flow.sport = p->flow.dport;
	p->flow.dst = s->owner.addr;
	p->flow.dport = s->owner.port;
	room_prepare(entry_kind(p->flow.family), ROOM_AT_HAND);
	if (!svc->template || !outbound_template(skb, p, svc, id)) {
		p->news &= ~NEWS_ASIDE;
		conn_lapse(&p->flow); /* not in the next function: a chain of calls has 8 frames */
		outbound_replace(&p->flow);
		decision = outbound_open(p, svc, id);
	}
	p->flow.dst = p->flow.src;
	p->flow.dport = p->flow.sport;
	p->flow.src = s->addr;
	p->flow.sport = s->port;
	return decision;
}

/* A packet that would pass to the stack: a decision or a verdict. */
__noinline int outbound_packet(struct __sk_buff *skb, struct packet *p)
{
	struct settings *set = get_settings();
	int decision;

	if (!p || !set->engines || p->flow.protocol != IPPROTO_UDP)
		return VERDICT_PASS;
	decision = outbound_find(skb, p);
	return decision == UNDECIDED ? find_reply(skb, p) : decision;
}

#endif
