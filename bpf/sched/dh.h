/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Destination hashing: the bucket of the destination address; weights count
 * only as being above zero, and a server that cannot take the connection is
 * not replaced (ip_vs_dh.c). The setting hash_fallback has the next bucket's
 * server replace it.
 */
#ifndef IMBANG_SCHED_DH_H
#define IMBANG_SCHED_DH_H

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

static __noinline __u32 dh_pick(struct pick *p)
{
	struct dh_search s = { .pick = p, .id = NO_SERVER };
	__u32 service = p->service;

	s.table = bpf_map_lookup_elem(&bucket_tables, &service);
	if (!s.table)
		return NO_SERVER;
	s.hash = hash_32(address_fold(&p->dst, p->family), HASH_BITS);
	s.id = bucket_server(p, s.table, s.hash);
	if (s.id == NO_SERVER && p->fallback)
		bpf_loop(HASH_BUCKETS, dh_visit, &s, 0);
	return s.id;
}

static __always_inline void dh_changed(struct change *c)
{
	/* Linux's dh has no hook for a weight, and needs none. */
	if (c->event != CHANGE_UPDATE)
		deal_buckets(c, 0);
}

#endif
