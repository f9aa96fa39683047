/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What lblc and lblcr share: the key of their caches, when an entry is stale,
 * and when a cached server has so much to do that another should help.
 */
#ifndef IMBANG_SCHED_LOCALITY_H
#define IMBANG_SCHED_LOCALITY_H

#include "contract.h"

/* Linux's lblc_expiration and lblcr_expiration: 24 hours. */
#define LOCALITY_EXPIRATION (24 * 3600 * NSEC_PER_SEC)

static __always_inline void locality_key(const struct pick *p, struct locality_key *key)
{
	key->addr = p->dst;
	key->service = p->service;
	key->incarnation = p->incarnation;
}

struct idle_search {
	struct pick *pick;
	__u32 found;
};

/* Less than half as many active connections as weight. Neither thresholds
 * nor zero weights are looked at, as in Linux. */
static long idle_visit(__u32 i, struct idle_search *search)
{
	__u32 id = server_id_nth(search->pick, i);
	struct server *s = server_far(id);
	struct load *l = load_far(id);

	if (!s || !l || (__s64)l->active * 2 >= s->weight)
		return 0;
	search->found = 1;
	return 1;
}

/* is_overloaded of ip_vs_lblc.c: busy, while another server is idle. */
static __always_inline int locality_overloaded(struct pick *p, const struct server *s,
					       const struct load *l)
{
	struct idle_search search = { .pick = p };

	if ((__s64)l->active <= s->weight)
		return 0;
	bpf_loop(p->count, idle_visit, &search, 0);
	return search.found;
}

#endif
