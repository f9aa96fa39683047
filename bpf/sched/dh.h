/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Destination hashing: the bucket of the destination address; weights count
 * only as being above zero, and a server that cannot take the connection is
 * not replaced (ip_vs_dh.c). The setting hash_fallback has the next bucket's
 * server replace it.
 */
#ifndef IMBANG_SCHED_DH_H
#define IMBANG_SCHED_DH_H

#include "../address.h"
#include "contract.h"
#include "hashed.h"

#define dh_tree(count) SCHED_NONE

struct dh_search {
	struct pick *pick;
	struct buckets *table;
	__u32 hash;
	__u32 id;
};

static long dh_visit(__u32 offset, struct dh_search *s)
{
	s->id = bucket_server(s->pick, s->table, s->hash + offset);
	return s->id != NO_SERVER;
}

/* Returns 1 if there is no more to try: a server, or a table that has none. */
static __always_inline int dh_try(struct dh_search *s)
{
	s->table = bucket_table(s->pick);
	if (!s->table) {
		s->id = table_missing(s->pick);
		return 1;
	}
	HOOK(TABLE);
	s->id = bucket_server(s->pick, s->table, s->hash);
	if (s->id == NO_SERVER && s->pick->fallback)
		bpf_loop(HASH_BUCKETS, dh_visit, s, 0);
	return s->id != NO_SERVER || !bucket_table_gone(s->pick, s->table);
}

static __noinline __u32 dh_pick(struct pick *p)
{
	struct dh_search s = { .pick = p, .id = NO_SERVER };

	s.hash = hash_32(address_fold(&p->dst, p->family), HASH_BITS);
	if (dh_try(&s) || dh_try(&s) || dh_try(&s))
		return s.id;
	return NO_SERVER;
}

static __always_inline void dh_changed(struct change *c)
{
	/* Linux's dh has no hook for a weight, and needs none. */
	if (c->event != CHANGE_UPDATE)
		deal_buckets(c, 0);
}

#endif
