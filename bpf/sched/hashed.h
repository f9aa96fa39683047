/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What dh and sh share: 256 buckets that are dealt out to the servers in the
 * list's order, over and over, and dealt out anew at each change.
 */
#ifndef IMBANG_SCHED_HASHED_H
#define IMBANG_SCHED_HASHED_H

#include "../scratch.h"
#include "contract.h"

#define HASH_BITS 8 /* of HASH_BUCKETS */

struct deal {
	struct buckets *table;
	__u32 first;
	__u32 count;
	__u32 position; /* who gets the next bucket */
	__u32 dealt;    /* buckets it has got in this round */
	__u32 weighted; /* a server gets `weight` buckets in a row */
};

static long deal_bucket(__u32 i, struct deal *d)
{
	__u32 id = server_id_at(d->first, d->position);
	struct server *s = server_of(id);
	__s32 want = 1;

	if (i >= HASH_BUCKETS)
		return 1;
	d->table->server[i] = id;
	if (s && d->weighted)
		want = s->weight;
	if ((__s32)++d->dealt >= want) {
		d->position = d->position ? d->position - 1 : d->count - 1;
		d->dealt = 0;
	}
	return 0;
}

static __always_inline void deal_buckets(struct change *c, __u32 weighted)
{
	struct deal d = {
		.first = c->service.first,
		.count = c->service.count,
		.position = c->service.count - 1,
		.weighted = weighted,
	};
	struct scratch *room;

	if (c->event == CHANGE_DONE || !c->service.count) {
		c->error = map_delete(bucket_tables, &c->service.id);
		return;
	}
	room = get_scratch(SCRATCH_PROCESS);
	if (!room)
		return;
	d.table = &room->buckets;
	bpf_loop(HASH_BUCKETS, deal_bucket, &d, 0);
	c->error = map_update(bucket_tables, &c->service.id, &room->buckets, BPF_ANY);
}

/*
 * A table that is replaced is the next one that an update takes, for any service,
 * while packets still look at it. So a bucket counts only if its server is one of
 * the service; without one, callers use bucket_table_gone.
 */
static __always_inline struct buckets *bucket_table(const struct pick *p)
{
	__u32 service = p->service;

	return bpf_map_lookup_elem(&bucket_tables, &service);
}

/* Whether a table is not the service's any more: what it said may be another's. */
static __always_inline int bucket_table_gone(const struct pick *p, const struct buckets *table)
{
	return bucket_table(p) != table;
}

/* The server of a bucket if it can take a connection. */
static __always_inline __u32 bucket_server(const struct pick *p, const struct buckets *table,
					   __u32 index)
{
	__u32 id = candidate(p, table->server[index & (HASH_BUCKETS - 1)]);
	struct server *s = server_of(id);
	struct load *l = load_of(id);

	if (!s || !l || !serves(s, p->service) || !usable(s, l))
		return NO_SERVER;
	return id;
}

#endif
