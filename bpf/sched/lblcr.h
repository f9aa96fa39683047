/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Locality-based least connection with replication: a destination address
 * has a set of servers, of which the least loaded takes the connection. When
 * even that one is overloaded, wlc's choice joins the set; when the set has
 * not changed for a day, its most loaded member leaves (ip_vs_lblcr.c).
 *
 * A set remembers LBLCR_SET servers; beyond that wlc's choice takes the
 * connection and is forgotten. Stale entries: see lblc.
 */
#ifndef IMBANG_SCHED_LBLCR_H
#define IMBANG_SCHED_LBLCR_H

#include "../scratch.h"
#include "contract.h"
#include "cost.h"
#include "least.h"
#include "locality.h"

#define lblcr_tree(count) SCHED_WLC
#define lblcr_changed unchanging

struct set_search {
	struct locality_set *set;
	struct least best;
};

/* The i-th member, the latest to join first: as Linux's list. */
static __always_inline __u32 set_member(struct set_search *search, __u32 i)
{
	__u32 at = search->set->count - 1 - i;

	if (at >= LBLCR_SET)
		return NO_SERVER;
	return candidate(search->best.pick, search->set->server[at]);
}

static long set_min_visit(__u32 i, struct set_search *search)
{
	__u32 id = set_member(search, i);
	struct server *s = server_far(id);
	struct load *l = load_far(id);

	if (s && l && serves(s, search->best.pick->service) && usable(s, l))
		least_offer(&search->best, id, wlc_cost(s->weight, l));
	return 0;
}

static long set_max_visit(__u32 i, struct set_search *search)
{
	__u32 id = set_member(search, i);
	struct server *s = server_far(id);
	struct load *l = load_far(id);
	struct least *most = &search->best;
	struct cost cost;

	if (!s || !l || s->weight <= 0)
		return 0;
	cost = wlc_cost(s->weight, l);
	if (costs_less(&most->cost, &cost)) {
		most->id = id;
		most->cost = cost;
	}
	return 0;
}

struct set_find {
	struct locality_set *set;
	__u32 id;
	__u32 found;
};

static long set_remove_visit(__u32 i, struct set_find *f)
{
	if (i >= LBLCR_SET - 1)
		return 1;
	if (f->set->server[i] == f->id)
		f->found = 1;
	if (f->found)
		f->set->server[i] = f->set->server[i + 1];
	return 0;
}

/* Takes out the most loaded member; the later ones move up. */
static __always_inline void set_shrink(struct set_search *search, __u64 now)
{
	struct locality_set *set = search->set;
	struct set_find f = { .set = set };

	search->best.id = NO_SERVER;
	search->best.cost.weight = 1;
	search->best.cost.load = -1; /* less than any */
	bpf_loop(set->count, set_max_visit, search, 0);
	if (search->best.id == NO_SERVER)
		return;
	f.id = search->best.id;
	bpf_loop(LBLCR_SET - 1, set_remove_visit, &f, 0);
	set->count--;
	set->last_change = now;
}

static long set_find_visit(__u32 i, struct set_find *f)
{
	if (i >= LBLCR_SET)
		return 1;
	if (f->set->server[i] != f->id)
		return 0;
	f->found = 1;
	return 1;
}

/* CPUs that add at once may remember a server twice or not at all; neither
 * changes who is least loaded. */
static __always_inline void set_add(struct locality_set *set, __u32 id, __u64 now)
{
	struct set_find f = { .set = set, .id = id };
	__u32 n = set->count;

	if (n >= LBLCR_SET)
		return;
	bpf_loop(n, set_find_visit, &f, 0);
	if (f.found)
		return;
	set->server[n] = id;
	set->count = n + 1;
	set->last_change = now;
}

static __always_inline void set_new(const struct locality_key *key, __u32 id, __u64 now)
{
	struct scratch *room = get_scratch(SCRATCH_PACKET);

	if (!room)
		return;
	__builtin_memset(&room->set, 0, sizeof(room->set));
	room->set.last_use = now;
	room->set.last_change = now;
	room->set.count = 1;
	room->set.server[0] = id;
	(void)map_update(locality_sets, key, &room->set, BPF_ANY);
}

static __noinline __u32 lblcr_pick(struct pick *p)
{
	struct set_search search = { .best.pick = p };
	__u64 now = now_coarse_ns();
	struct locality_key key;
	__u32 id;

	locality_key(p, &key);
	search.set = bpf_map_lookup_elem(&locality_sets, &key);
	if (!search.set || now - search.set->last_use >= LOCALITY_EXPIRATION) {
		id = least_pick(p, SCHED_WLC);
		HOOK(LOCALITY_SET);
		if (id != NO_SERVER && !p->peek)
			set_new(&key, id, now);
		return id;
	}
	if (!p->peek)
		search.set->last_use = now;
	least_none(&search.best);
	bpf_loop(search.set->count, set_min_visit, &search, 0);
	id = search.best.id;
	if (!p->peek && search.set->count > 1 &&
	    now - search.set->last_change > LOCALITY_EXPIRATION)
		set_shrink(&search, now);
	if (id != NO_SERVER) {
		struct server *s = server_far(id);
		struct load *l = load_far(id);

		if (s && l && !locality_overloaded(p, s, l))
			return id;
	}
	id = least_pick(p, SCHED_WLC);
	if (id != NO_SERVER && !p->peek)
		set_add(search.set, id, now);
	return id;
}

#endif
