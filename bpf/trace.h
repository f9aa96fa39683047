/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reports to tracers the packets that were not simply forwarded, and why: which
 * service, the scheduler's choice and what it would have chosen instead, or
 * the reason that there was no forwarding. Nothing here runs for a packet of a
 * settled connection.
 */
#ifndef IMBANG_TRACE_H
#define IMBANG_TRACE_H

#include "clock.h"
#include "conn.h"
#include "counters.h"
#include "sched.h"
#include "service.h"
#include "settings.h"
#include "story.h"

/* Asks the scheduler, and stores its choice and the runner-up. The
 * peek comes first: the scheduler's memory must then be the same as in the
 * real choice that follows. */
static __always_inline __u32 choose_aloud(const struct packet *p, struct pick *pick,
					  enum scheduler scheduler)
{
	struct explanation *story;
	__u32 id, foreseen, second;

	pick->peek = 1;
	id = foreseen = schedule(pick, scheduler);
	pick->without = foreseen;
	second = schedule(pick, scheduler);
	if (!p->peek) {
		pick->peek = 0;
		pick->without = NO_SERVER;
		id = schedule(pick, scheduler);
	}
	/* Another CPU's packet came between, or a random number. */
	if (id != foreseen) {
		pick->peek = 1;
		pick->without = id;
		second = schedule(pick, scheduler);
	}
	story = story_of(p);
	if (!story)
		return id;
	contender_now(&story->event.server, id);
	contender_now(&story->event.runner_up, id == NO_SERVER ? id : second);
	return id;
}

/* Writes down the server that a template chose. */
__noinline int note_template(struct packet *p, __u32 id)
{
	struct explanation *story = p ? story_of(p) : 0;

	if (!story)
		return 0;
	p->news |= NEWS_TEMPLATE;
	if (!p->peek && !traced())
		return 0;
	p->news |= NEWS_NOTED;
	contender_now(&story->event.server, id);
	return 0;
}

/* The service that a packet is told of: its server's, or the one that it is
 * found to be for. */
static __always_inline void event_service(const struct packet *p, struct trace_event *e)
{
	struct settings *set = get_settings();
	__u32 id = p->server;
	struct server *s = server_far(id);
	struct service_key key;
	struct service *svc = 0;

	e->service.family = 0;
	e->scheduler = SCHED_NONE;
	e->servers = 0;
	e->netmask = 0;
	if (s) {
		key = s->owner;
		svc = bpf_map_lookup_elem(&services, &key);
	} else if (p->flow.family) {
		svc = service_find(p, set, &key);
	}
	if (s || svc)
		e->service = key;
	if (!svc)
		return;
	e->scheduler = svc->scheduler;
	e->servers = svc->count;
	e->netmask = svc->netmask;
}

/* Writes down all that is not yet. */
static __always_inline void event_complete(const struct packet *p, struct trace_event *e)
{
	e->time = now_ns();
	e->flow = p->flow;
	e->virtual = p->from_server ? p->to : p->flow.dst;
	e->virtual_port = p->from_server ? p->port : p->flow.dport;
	e->ifindex = p->ifindex;
	e->mark = p->mark;
	e->length = p->length;
	e->news = p->news;
	e->reason = p->reason;
	e->tcp_bits = p->tcp_bits;
	e->from_server = p->from_server;
	e->was = p->was;
	e->state = p->state;
	if (!(p->news & NEWS_CHOSEN))
		e->runner_up.id = NO_SERVER;
	if (!(p->news & NEWS_NOTED) || e->server.id != p->server)
		contender_now(&e->server, p->server);
	event_service(p, e);
}

static __always_inline int address_in(const union address *a, const union address *network,
				      const union address *mask)
{
	return (a->word[0] & mask->word[0]) == network->word[0] &&
	       (a->word[1] & mask->word[1]) == network->word[1] &&
	       (a->word[2] & mask->word[2]) == network->word[2] &&
	       (a->word[3] & mask->word[3]) == network->word[3];
}

static __always_inline int address_any(const union address *a)
{
	return !(a->word[0] | a->word[1] | a->word[2] | a->word[3]);
}

/* Whether a tracer's filter selects an event. */
static __always_inline int event_wanted(const struct tracer *t, const struct trace_event *e)
{
	__u64 reasons = t->reasons;
	__u8 news = e->news & ~NEWS_ASIDE;

	if (t->until < e->time)
		return 0;
	if (e->service.family)
		reasons |= t->reasons_services;
	if (!(e->news & NEWS_ASIDE && reasons >> (e->reason & 63) & 1) && !(news & t->news))
		return 0;
	if (!address_in(e->from_server ? &e->flow.dst : &e->flow.src, &t->client, &t->client_mask))
		return 0;
	if (!address_any(&t->virtual) && !address_equal(&t->virtual, &e->virtual))
		return 0;
	if (t->port && t->port != e->virtual_port)
		return 0;
	if (t->fwmark && t->fwmark != e->service.fwmark)
		return 0;
	return address_any(&t->server) ||
	       (e->server.id != NO_SERVER && address_equal(&t->server, &e->server.addr));
}

struct telling {
	struct trace_event *event;
};

static long tell_one(__u32 number, struct telling *telling)
{
	struct tracer *t = bpf_map_lookup_elem(&tracers, &number);
	void *ring = bpf_map_lookup_elem(&rings, &number);
	__u64 *lost;

	if (!t || !ring || !event_wanted(t, telling->event))
		return 0;
	if (!bpf_ringbuf_output(ring, telling->event, sizeof(*telling->event), 0))
		return 0;
	lost = bpf_map_lookup_elem(&unheard, &number);
	if (lost)
		__sync_fetch_and_add(lost, 1);
	return 0;
}

/* The last step of a packet that has something to report. */
__noinline int report(const struct packet *p)
{
	struct telling telling = {};
	struct explanation *story;

	if (!p)
		return 0;
	if (p->news & NEWS_ASIDE)
		count_reason(p->reason);
	if (!traced())
		return 0;
	story = story_of(p);
	if (!story)
		return 0;
	telling.event = &story->event;
	event_complete(p, telling.event);
	bpf_loop(TRACERS, tell_one, &telling, 0);
	return 0;
}

#endif
