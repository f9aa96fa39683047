/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Room in a full table. A packet that finds none displaces an unproven entry (proof.h): of the
 * service that has most of them (crowd.h), one that was not answered and had the fewest packets,
 * out of some that are looked at by chance. A search ends at an entry that is as good as the best
 * of the last one that ended at none; one in 64 looks for the best. One whose time is over goes
 * first. A packet of that service itself displaces none of another's, nor the template that it has
 * just made. So a flood of one service makes room for all, and the entries of the flood displace
 * each other. What is proven stays, and so do the connections of TCP, where a flood is kept out by
 * challenges.
 */
#ifndef IMBANG_DISPLACE_H
#define IMBANG_DISPLACE_H

#include "attack.h"
#include "call.h"
#include "conn_life.h"
#include "packet.h"
#include "rng.h"
#include "sweep.h"

/* Entries that are looked at, by chance, at most; and one search out of how many looks for the
 * best. */
#define DISPLACE_TRIES 32
#define DISPLACE_TURNS 64

/* What would be lost with an entry: its packets, and more if it was answered, or is not of the
 * service that has most. */
#define RANK_ANSWERED (1U << 15)
#define RANK_OTHERS (1U << 16)
#define RANK_LEAST 1U

#define NO_SERVICE 0xffffffffU

struct displacing {
	__u32 index;  /* of the best entry; 0: none was found */
	__u32 rank;   /* of it */
	__u32 enough; /* a rank that needs no further look */
	__u32 kept;   /* index of the packet's own template, which stays; 0: none */
	__u32 most;   /* id of the service that has most, or NO_SERVICE */
	__u8 own;     /* the packet is for that one */
	__u8 calls;   /* what is short are numbers of calls */
	__u8 family;
	__u8 pad;
};

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
	__u32 lines = entries_at(), index = lines ? entry_at(random_u32() % lines) : 0, rank;
	struct flow flow = {};
	struct server *s;
	struct conn seen = {};
	enum entry_seen is = entry_glance(index, &flow, &seen);

	if (is == ENTRY_NONE || flow.family != d->family || index == d->kept)
		return 0;
	if (is == ENTRY_LAPSED && !d->calls) {
		d->index = index;
		return 1;
	}
	if (is == ENTRY_LAPSED || !displaceable(&flow, &seen, d))
		return 0;
	rank = seen.in_packets;
	if (seen.flags & CONN_ASSURED)
		rank |= RANK_ANSWERED;
	s = server_far(seen.server);
	if (!s || s->service != d->most)
		rank |= RANK_OTHERS;
	if (rank >= d->rank || (d->own && rank & RANK_OTHERS))
		return 0;
	d->rank = rank;
	d->index = index;
	return rank <= d->enough;
}

/* The index of the one that is to end; 0: none was found. */
static __noinline __u32 displace_find(const struct packet *p, __u8 calls)
{
	struct displacing d = { .rank = ~0U, .most = NO_SERVICE, .calls = calls };
	const struct crowding *crowds;
	struct scratch *room = get_scratch(SCRATCH_PACKET);
	__u32 *rank;
	int all;

	d.kept = p->inherited.template;
	d.family = p->flow.family;
	crowds = &state.attack.crowds[d.family == AF_INET6];
	if (crowds->most)
		d.most = crowds->service;
	if (!room)
		return 0;
	d.own = room->service.id == d.most;
	rank = &room->rank[d.family == AF_INET6];
	all = !(++room->displaced % DISPLACE_TURNS);
	d.enough = all ? RANK_LEAST : *rank;
	if (bpf_loop(TRIES(DISPLACE_TRIES), displace_look, &d, 0) >= TRIES(DISPLACE_TRIES) || all)
		*rank = d.rank & RANK_OTHERS ? RANK_LEAST : d.rank;
	return d.index;
}

/* Ends an entry for a packet that found no room (no_room): 0, or 1 if there is some now. */
__noinline int displace(struct packet *p)
{
	struct handshake_counts *h = get_handshakes();
	struct flow flow = {};
	struct conn seen = {};
	enum entry_seen is;
	__u8 full;

	if (!p || !h)
		return 0;
	full = p->inherited.full;
	p->inherited.full = FULL_NONE;
	p->inherited.again = 1;
	if (full == FULL_LAPSED)
		return conn_lapse(&p->flow) || conn_settled_away(&p->flow);
	is = entry_see(displace_find(p, full == FULL_CALLS), &flow, &seen);
	if (is == ENTRY_LIVES && sweep_end(&flow, &seen, KILL_UNPROVEN))
		h->displaced++;
	else if (is != ENTRY_LAPSED || !conn_lapse(&flow))
		return 0;
	room_note((seen.index & INDEX_MASK) / INDEX_LINES, entry_kind(flow.family));
	return 1;
}

/* Whether a packet that would open a connection found no room. */
static __always_inline int no_room(const struct packet *p, int decision)
{
	if (decision == UNDECIDED)
		return p->inherited.full == FULL_LAPSED;
	return decision == VERDICT_DROP && p->reason == REASON_DROP_TABLE_FULL && p->inherited.full;
}

#endif
