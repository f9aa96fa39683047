/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Destination hashing: the bucket of the destination address; weights count
 * only as being above zero, and a server that cannot take the connection is
 * not replaced (ip_vs_dh.c).
 */
#ifndef IMBANG_SCHED_DH_H
#define IMBANG_SCHED_DH_H

static __noinline __u32 dh_pick(struct pick *p)
{
	__u32 service = p->service;
	struct buckets *table = bpf_map_lookup_elem(&bucket_tables, &service);

	if (!table)
		return NO_SERVER;
	return bucket_server(p, table, hash_32(address_fold(&p->dst, p->family), HASH_BITS));
}

static __always_inline void dh_changed(struct change *c)
{
	/* Linux's dh has no hook for a weight, and needs none. */
	if (c->event != CHANGE_UPDATE)
		deal_buckets(c, 0);
}

#endif
