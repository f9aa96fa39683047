/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Source hashing: the bucket of the client's address, and with sh-port of
 * its port; each server has as many buckets in a row as its weight, at least
 * one (ip_vs_sh.c). With sh-fallback (or the
 * setting hash_fallback), a server that cannot take the
 * connection is replaced by hashing on with offsets 0 to 255.
 */
#ifndef IMBANG_SCHED_SH_H
#define IMBANG_SCHED_SH_H

#include "../address.h"
#include "contract.h"
#include "hashed.h"

#define sh_tree(count) SCHED_NONE

#define SVC_SH_FALLBACK SVC_SCHED_1
#define SVC_SH_PORT SVC_SCHED_2

static __always_inline __u32 sh_hash(const struct pick *p, __u32 offset)
{
	__u32 port = p->flags & SVC_SH_PORT ? bpf_ntohs(p->sport) : 0;

	return (offset + hash_32(port + address_fold(&p->src, p->family), HASH_BITS)) &
	       (HASH_BUCKETS - 1);
}

struct sh_search {
	struct pick *pick;
	struct buckets *table;
	__u32 hash; /* of offset 0 */
	__u32 id;
};

static long sh_visit(__u32 offset, struct sh_search *s)
{
	__u32 roffset = (offset + s->hash) & (HASH_BUCKETS - 1);

	s->id = bucket_server(s->pick, s->table, sh_hash(s->pick, roffset));
	return s->id != NO_SERVER;
}

/* Returns 1 if there is no more to try: a server, or a table that has none. */
static __always_inline int sh_try(struct sh_search *s)
{
	s->table = bucket_table(s->pick);
	if (!s->table) {
		s->id = table_missing(s->pick);
		return 1;
	}
	HOOK(TABLE);
	s->id = bucket_server(s->pick, s->table, s->hash);
	if (s->id == NO_SERVER && (s->pick->fallback || s->pick->flags & SVC_SH_FALLBACK))
		bpf_loop(HASH_BUCKETS, sh_visit, s, 0);
	return s->id != NO_SERVER || !bucket_table_gone(s->pick, s->table);
}

static __noinline __u32 sh_pick(struct pick *p)
{
	struct sh_search s = { .pick = p, .id = NO_SERVER };

	s.hash = sh_hash(p, 0);
	if (sh_try(&s) || sh_try(&s) || sh_try(&s))
		return s.id;
	return NO_SERVER;
}

static __always_inline void sh_changed(struct change *c)
{
	deal_buckets(c, 1);
}

#endif
