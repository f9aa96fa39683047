/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Room in a full table. A packet that finds none displaces an unproven entry (proof.h): of the
 * service that has most of them (crowd.h), one that was not answered and had the fewest packets,
 * out of some that are looked at by chance. A packet of that service itself displaces none of
 * another's, nor the template that it has just made. So a flood of one service makes room for all,
 * and the entries of the flood displace each other. What is proven stays, and so do the connections
 * of TCP, where a flood is kept out by challenges.
 *
 * The timer entry goes with the room: entries that end early would leave theirs behind, and at
 * the rate of a flood there would be none left. It gets the new flow while it is in its slot
 * (timer_entry_assume), and the new connection inherits it.
 */
#ifndef IMBANG_DISPLACE_H
#define IMBANG_DISPLACE_H

#include "attack.h"
#include "call.h"
#include "conn_life.h"
#include "packet.h"
#include "rng.h"
#include "sweep.h"
#include "wheel.h"

/* Entries that are looked at, by chance, at most. */
#define DISPLACE_TRIES 32

/* What would be lost with an entry: its packets, and more if it was answered, or is not of the
 * service that has most. */
#define RANK_ANSWERED (1U << 15)
#define RANK_OTHERS (1U << 16)
#define RANK_LEAST 1U

#define NO_SERVICE 0xffffffffU

struct displacing {
	__u32 number; /* of the best entry's timer entry; 0: none was found */
	__u32 rank;   /* of it */
	__u32 kept;   /* timer entry of the packet's own template, which stays; 0: none */
	__u32 most;   /* id of the service that has most, or NO_SERVICE */
	__u8 own;     /* the packet is for that one */
	__u8 calls;   /* what is short are numbers of calls */
	__u8 family;
	__u8 used;              /* free lists of which entries were taken */
	__u8 lists[FREE_LISTS]; /* which these are: few where few CPUs open connections */
};

static long displace_list(__u32 i, struct displacing *d)
{
	struct free_timer_entries *free = free_list_of(i, d->family);

	if (free && free->fresh)
		d->lists[d->used++ % FREE_LISTS] = i;
	return 0;
}

/* A timer entry that was taken once, by chance. */
static __always_inline __u32 displace_number(const struct displacing *d)
{
	__u32 chance = random_u32(), used = d->used, fresh, list;
	struct free_timer_entries *free;

	if (!used)
		return 0;
	list = d->lists[chance % used % FREE_LISTS];
	free = free_list_of(list, d->family);
	fresh = free ? free->fresh : 0;
	return fresh ? timer_entry_number(list, chance / FREE_LISTS % fresh) : 0;
}

static __always_inline int displaceable(const struct flow *flow, const struct conn *seen,
					const struct displacing *d)
{
	if (flow->protocol == IPPROTO_TCP || !(seen->flags & CONN_UNPROVEN))
		return 0;
	if (flow->template)
		return !seen->controlled && (!d->calls || is_call(flow));
	return !d->calls || seen->template == TEMPLATE_CALL;
}

static long displace_look(__u32 i, struct displacing *d)
{
	__u32 number = displace_number(d), rank;
	struct server *s;
	struct conn seen;
	struct flow flow;

	if (!timer_entry_flow(number, d->family, &flow) || !conn_look(&flow, &seen) ||
	    seen.number != number || number == d->kept || !displaceable(&flow, &seen, d))
		return 0;
	rank = seen.in_packets;
	if (seen.flags & CONN_ASSURED)
		rank |= RANK_ANSWERED;
	s = bpf_map_lookup_elem(&servers, &seen.server);
	if (!s || s->service != d->most)
		rank |= RANK_OTHERS;
	if (rank >= d->rank || (d->own && rank & RANK_OTHERS))
		return 0;
	d->rank = rank;
	d->number = number;
	return rank <= RANK_LEAST;
}

/* The timer entry of the one that is to end; 0: none was found. */
static __noinline __u32 displace_find(const struct packet *p, __u8 calls)
{
	struct displacing d = { .rank = ~0U, .most = NO_SERVICE, .calls = calls };
	const struct crowding *crowds;
	__u32 id = p->server;
	struct server *s = bpf_map_lookup_elem(&servers, &id);

	d.kept = p->inherited.template;
	d.family = p->flow.family;
	crowds = &state.attack.crowds[d.family == AF_INET6];
	if (crowds->most)
		d.most = crowds->service;
	d.own = s && s->service == d.most;
	bpf_loop(FREE_LISTS, displace_list, &d, 0);
	bpf_loop(TRIES(DISPLACE_TRIES), displace_look, &d, 0);
	return d.number;
}

/* Ends an entry for a packet that found no room (no_room): 0, or 1 if there is some now. */
__noinline int displace(struct packet *p)
{
	struct handshake_counts *h = get_handshakes();
	struct conn seen;
	struct flow flow;
	__u32 number;

	if (!p || !h)
		return 0;
	number = displace_find(p, p->inherited.full == FULL_CALLS);
	p->inherited.full = FULL_NONE;
	if (!timer_entry_flow(number, p->flow.family, &flow) || !conn_look(&flow, &seen) ||
	    seen.number != number || !sweep_end(&flow, &seen, KILL_UNPROVEN))
		return 0;
	h->displaced++;
	if (timer_entry_assume(seen.number, &p->flow, tick_near(seen.due, now_coarse_ns()))) {
		p->inherited.due = seen.due;
		p->inherited.number = seen.number;
	}
	return 1;
}

/* Whether a packet that would open a connection found no room. */
static __always_inline int no_room(const struct packet *p, int decision)
{
	return decision == VERDICT_DROP && p->reason == REASON_DROP_TABLE_FULL && p->inherited.full;
}

#endif
