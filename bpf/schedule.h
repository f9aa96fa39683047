/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Packets of no known connection: which service they are for, and whether they
 * open a connection, to the server that its scheduler chooses
 * (ip_vs_schedule).
 */
#ifndef IMBANG_SCHEDULE_H
#define IMBANG_SCHEDULE_H

#include "challenge.h"
#include "client.h"
#include "conn_packet.h"
#include "displace.h"
#include "failover.h"
#include "forward/hairpin.h"
#include "forward/method.h"
#include "hook.h"
#include "persist.h"
#include "persist_call.h"
#include "ramp.h"
#include "reserve.h"
#include "service.h"
#include "settings.h"
#include "steer.h"
#include "sync.h"
#include "trace.h"
#include "upgrade.h"

static __always_inline void pick_for(const struct packet *p, const struct service *svc,
				     struct pick *pick)
{
	pick->fallback = get_settings()->hash_fallback;
	pick->service = svc->id;
	pick->incarnation = svc->incarnation;
	pick->first = svc->first;
	pick->count = svc->count;
	pick->flags = svc->flags;
	pick->src = p->flow.src;
	pick->dst = p->flow.dst;
	pick->sport = p->flow.sport;
	pick->family = p->flow.family;
	pick->protocol = p->flow.protocol;
	pick->without = NO_SERVER;
}

/* The port of the server: its own, or the one that the client asked for. A
 * template for every port leaves it to the client, and so do methods that rewrite
 * none. */
static __always_inline __be16 server_port(const struct packet *p, const struct service *svc,
					  const struct server *s)
{
	if (!s->port || !rewrites_port(s->forward) || (svc->template && p->flow.dport != svc->port))
		return p->flow.dport;
	return s->port;
}

/* Whether the packet is a connection by itself. */
static __always_inline int one_packet(const struct packet *p, const struct service *svc)
{
	return svc->flags & SVC_ONE_PACKET && p->flow.protocol == IPPROTO_UDP;
}

/* The packet that opened a connection. One ahead is counted when it is sure to go. */
static __always_inline int conn_first(struct packet *p, const struct conn *c,
				      const struct server *s)
{
	if (!p->ahead)
		count_in(p, s->service, c->server);
	if (p->part == FIRST_PART)
		fragment_note(p, &p->flow, FROM_CLIENT, NO_SERVER);
	return decide_server(p, c->server, s, c->forward, c->port);
}

/* A connection for as long as the packet takes: it may be the one that reaches a threshold. */
static __always_inline int conn_of_one(struct packet *p, const struct service *svc,
				       const struct conn *fresh, struct server *s, struct load *l)
{
	__u32 id = fresh->server;

	server_bind(s, l, 1);
	server_unbind(id, 1);
	conn_release(&p->flow, fresh);
	count_conn(svc->id, id);
	count_in(p, svc->id, id);
	p->news |= NEWS_OPENED;
	if (p->part == FIRST_PART)
		fragment_note(p, &p->flow, FROM_CLIENT, id);
	return decide_server(p, id, s, fresh->forward, fresh->port);
}

/* No connection comes of a packet: the template is held for none. */
static __always_inline int conn_none(struct packet *p, const struct conn *fresh, __u32 reason)
{
	conn_release(&p->flow, fresh);
	entry_withdraw(p);
	return drop(p, reason);
}

/* A new connection of a service to the server that was chosen for it, in the entry that was
 * reserved. */
__noinline int conn_open(struct packet *p, const struct service *svc, __u32 id)
{
	struct server *s = server_of(id);
	struct load *l = load_of(id);
	struct settings *set = get_settings();
	struct conn fresh = {};
	int rc;

	if (!p || !svc)
		return VERDICT_DROP;
	fresh.server = id;
	fresh.template = svc->template;
	fresh.netmask = svc->netmask;
	fresh.fwmark = svc->fwmark;
	if (by_call(svc)) {
		fresh.template = TEMPLATE_CALL;
		fresh.fwmark = p->inherited.call;
	}
	p->server = id;
	HOOK(CONN_OPEN);
	if (!s || !l || !(s->flags & SERVER_AVAILABLE))
		return conn_none(p, &fresh, REASON_DROP_SERVER_DELETED);
	fresh.port = server_port(p, svc, s);
	fresh.forward = s->forward;
	if (one_packet(p, svc))
		return conn_of_one(p, svc, &fresh, s, l);
	if (p->hairpin) {
		/* It might get a port of one that is still to be adopted. */
		if (set->adopting)
			return conn_none(p, &fresh, REASON_DROP_UPGRADE);
		fresh.flags = CONN_HAIRPIN;
	}
	if (client_full(p, set))
		return conn_none(p, &fresh, REASON_DROP_CLIENT_SHARE);
	fresh.index = p->inherited.entry;
	conn_begin(p, &fresh, set);
	server_bind(s, l, fresh.flags & CONN_INACTIVE);
	load_changed(id);
	rc = conn_create(p, &fresh, s, set, 1);
	if (!rc) {
		count_conn(svc->id, id);
		if (set->syncing)
			p->packets = fresh.in_packets;
		return conn_first(p, &fresh, s);
	}
	if (conn_withdrawn(rc)) {
		p->inherited.entry = 0;
		return drop(p, p->hairpin ? REASON_DROP_NO_HAIRPIN : REASON_DROP_TABLE_FULL);
	}
	server_unbind(id, fresh.flags & CONN_INACTIVE);
	p->inherited.full = FULL_TABLE;
	return conn_none(p, &fresh, REASON_DROP_TABLE_FULL);
}

/* A choice, if it is one of the service's servers: the service may have been deleted
 * and added again with its servers, which then count for the new one. */
static __always_inline __u32 checked_choice(const struct service *svc, __u32 id)
{
	struct server *s = server_of(id);

	return !s || serves(s, svc->id) ? id : STALE_CHOICE;
}

/* The choice, or another one if that server has a ramp and has had its part. */
static __always_inline __u32 choose_ramped(struct pick *pick, enum scheduler scheduler, __u32 id)
{
	__u32 other;

	if (!ramp_holds(pick->service, id))
		return id;
	pick->without = WITHOUT_RAMPING;
	pick->fallback = 1;
	other = schedule(pick, scheduler);
	return other == NO_SERVER || other == STALE_CHOICE ? id : other;
}

/* The scheduler's choice; NO_SERVER if no server can take the connection, or
 * STALE_CHOICE. */
__noinline __u32 choose(struct packet *p, const struct service *svc)
{
	struct settings *set = get_settings();
	struct pick pick = {};
	__u32 id;

	if (!p || !svc)
		return NO_SERVER;
	pick_for(p, svc, &pick);
	HOOK(CHOOSE);
	if (!p->peek && !traced()) {
		id = schedule(&pick, svc->scheduler);
	} else {
		p->news |= NEWS_CHOSEN | NEWS_NOTED;
		id = choose_aloud(p, &pick, svc->scheduler);
		pick.peek = p->peek;
	}
	if (set->slow_starts && !p->peek)
		id = choose_ramped(&pick, svc->scheduler, id);
	return checked_choice(svc, id);
}

/* Likewise, or a template's server. The connection then holds a template if
 * the service is persistent. */
static __always_inline __u32 server_for(struct packet *p, const struct service *svc)
{
	__u32 id;

	if (!svc->template)
		return choose(p, svc);
	id = by_call(svc) ? call_use(p, NO_SERVER) : template_use(p, svc);
	if (id != NO_SERVER) {
		note_template(p, id);
		return id;
	}
	id = choose(p, svc);
	if (id == NO_SERVER || id == STALE_CHOICE || p->peek)
		return id;
	id = by_call(svc) ? call_open(p, svc, id) : template_open(p, svc, id);
	if (id == NO_SERVER && by_call(svc))
		id = call_use(p, NO_SERVER);
	return id == NO_SERVER ? NO_ROOM : id;
}

/* Tells of the template of a packet that is a connection by itself, which is not told of
 * (ip_vs_sync_conn, ip_vs_sync_conn_v0). */
__noinline int one_packet_told(const struct packet *p, const struct service *svc, __u32 id)
{
	struct settings *set = get_settings();
	struct sync_question q = {};
	struct control control;

	if (!p || !svc || !followed() || (!set->sync_version && set->syncing == SYNCING_ALL))
		return 0;
	q.now = now_coarse_ns();
	control.kind = by_call(svc) ? TEMPLATE_CALL : svc->template;
	control.netmask = svc->netmask;
	control.fwmark = by_call(svc) ? p->inherited.call : svc->fwmark;
	control.server = id;
	sync_template(&p->flow, &control, &q);
	return 0;
}

/* conn_open, or with the setting hairpin perhaps one. */
static __always_inline int conn_or_hairpin(struct __sk_buff *skb, struct packet *p,
					   const struct service *svc, __u32 id,
					   const struct settings *set)
{
	struct server *s = server_of(id);

	if (set->hairpin && s && !one_packet(p, svc) && hairpin_wanted(skb, p, s))
		p->hairpin = HAIRPIN;
	if (set->syncing && svc->template && one_packet(p, svc))
		one_packet_told(p, svc, id);
	return conn_open(p, svc, id);
}

/* The server to which a packet would open a connection. */
static __always_inline int would_open(struct packet *p, const struct service *svc, __u32 id)
{
	struct server *s = server_of(id);

	p->server = id;
	if (!s || !(s->flags & SERVER_AVAILABLE))
		return drop(p, REASON_DROP_SERVER_DELETED);
	if (!one_packet(p, svc) && client_full(p, get_settings()))
		return drop(p, REASON_DROP_CLIENT_SHARE);
	return decide_server(p, id, s, s->forward, server_port(p, svc, s));
}

/* Nothing new comes of a packet, but the end of what was outdated. */
static __always_inline int none_new(struct packet *p, __u32 reason)
{
	if (p->outdated && !p->peek)
		conn_end(p);
	return pass(p, reason);
}

/* Whether a packet has the entry that its connection is to be in. Not if its flow has one, which
 * may be over, or another CPU's that has the same packet. */
static __always_inline int reserved(struct packet *p, const struct service *svc)
{
	int rc = p->peek || one_packet(p, svc) ? 0 : entry_reserve(p);

	if (rc)
		p->inherited.full = rc == -EEXIST ? FULL_LAPSED : FULL_TABLE;
	else if (svc->template)
		room_prepare(entry_kind(p->flow.family), 1); /* a template's */
	return !rc;
}

/* There is no server for a packet. */
static __always_inline int no_choice(struct packet *p, __u32 id)
{
	entry_withdraw(p);
	if (id == STALE_CHOICE)
		return drop(p, REASON_DROP_SERVER_DELETED);
	if (id == NO_ROOM) /* as ip_vs_sched_persist does */
		return drop(p, REASON_DROP_TABLE_FULL);
	return refuse(p, ICMP_ERROR_PORT, 0, REASON_REFUSED_NO_SERVER);
}

/*
 * A packet of no known connection: perhaps the first of a new one. One that
 * is outdated may be there; it counts until its successor's server is chosen,
 * as in Linux. Returns a verdict or a decision. Without an skb it is ahead. One that comes
 * again, as there was no room (displace.h), is not asked again for what it has shown.
 */
static __always_inline int conn_schedule(struct __sk_buff *skb, struct packet *p)
{
	struct settings *set = get_settings();
	struct service *svc = 0;
	int again;
	__u32 id;

	if (!p)
		return VERDICT_DROP;
	again = p->inherited.again;
	if (again) {
		p->news &= ~NEWS_ASIDE;
		p->reason = 0;
	}
	if (set->adopting && awaits_adoption(p))
		return drop(p, REASON_DROP_UPGRADE);
	if (failover_works()) {
		int decision = skb ? failover_decides(skb, p) : failover_later(p);

		if (decision != UNDECIDED)
			return decision == LEFT ? UNDECIDED : decision;
	}
	if (!may_open(p, set))
		return none_new(p, REASON_PASS_NO_CONNECTION);
	switch (service_wanted(p, set, &svc)) {
	case SERVICE_NONE:
		return none_new(p, REASON_PASS_NO_SERVICE);
	case SERVICE_CHANGED:
		return drop(p, REASON_DROP_SERVICE_CHANGED);
	case SERVICE_FOUND:
		break;
	}
	if (skb && sent_by_peer(skb, p))
		return none_new(p, REASON_PASS_FROM_PEER);
	if (!address_of_host(&p->flow.src))
		return none_new(p, REASON_PASS_MARTIAN);
	/* A connection and a packet at once, or turns to be taken of packets
	 * that there may be no server for. */
	if (!skb && (one_packet(p, svc) || by_call(svc) || defence_works(set->drop_packet)))
		return UNDECIDED;
	if (!again && drop_packet(p, set)) {
		none_new(p, REASON_DROP_DEFENCE);
		return VERDICT_DROP;
	}
	if (p->flow.sport == bpf_htons(20))
		return none_new(p, REASON_PASS_FTP_DATA);
	/* Other ports of an FTP service need persistence. */
	if (!svc->template && !svc->fwmark && p->flow.dport != svc->port)
		return none_new(p, REASON_PASS_NO_SERVICE);
	if (!again && !admitted(p))
		return drop(p, p->peek ? REASON_DROP_CHALLENGED : REASON_DROP_UNPROVEN);

	if (!p->peek)
		room_prepare(entry_kind(p->flow.family), ROOM_AT_HAND);
	if (!p->peek && p->inherited.lapsed)
		conn_lapse(&p->flow);
	if (p->outdated)
		p->news |= NEWS_OUTDATED;
	if (skb && by_call(svc) && !p->peek && call_read(skb, p, svc)) {
		none_new(p, REASON_DROP_NO_CALL_ID);
		return VERDICT_DROP;
	}
	if (!reserved(p, svc))
		return p->inherited.full == FULL_LAPSED ? UNDECIDED
							: drop(p, REASON_DROP_TABLE_FULL);
	id = server_for(p, svc);
	if (p->inherited.reuses)
		entry_vacate(p);
	else if (p->outdated && !p->peek)
		conn_end(p);
	HOOK(CONN_ENDED);
	if (id == NO_SERVER || id == STALE_CHOICE || id == NO_ROOM)
		return no_choice(p, id);
	if (!skb)
		return conn_open(p, svc, id);
	if (p->peek)
		return would_open(p, svc, id);
	return conn_or_hairpin(skb, p, svc, id, set);
}

__noinline int conn_new(struct __sk_buff *skb, struct packet *p)
{
	/* Here, and not beside the look-ups: lb_whole has no stack left. */
	int decision = steer_in(skb, p);

	return decision == UNDECIDED ? conn_schedule(skb, p) : decision;
}

/* Likewise, before there is an skb: the connection is opened, and nothing made
 * of its packet yet. */
__noinline int conn_new_ahead(struct packet *p)
{
	return conn_schedule(0, p);
}

static __always_inline int conn_try(struct __sk_buff *skb, struct packet *p)
{
	return skb ? conn_new(skb, p) : conn_new_ahead(p);
}

/* Either, and room is made for it: a template takes some, then its connection's replies and that
 * itself. */
static __always_inline int conn_opened(struct __sk_buff *skb, struct packet *p)
{
	int decision = conn_try(skb, p), i;

	for (i = 0; i < 3 && no_room(p, decision) && displace(p); i++)
		decision = conn_try(skb, p);
	return decision;
}

#endif
