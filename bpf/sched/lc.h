/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Least connection: the least overhead, whatever the weights; the first of
 * the list on a tie (ip_vs_lc.c).
 */
#ifndef IMBANG_SCHED_LC_H
#define IMBANG_SCHED_LC_H

#define LC_MORE_THAN_ANY (1LL << 62)

struct lc_best {
	struct pick *pick;
	__u32 id;
	__s64 overhead;
};

static long lc_visit(__u32 i, struct lc_best *best)
{
	__u32 id = server_id_nth(best->pick, i);
	struct server *s = bpf_map_lookup_elem(&servers, &id);
	struct load *l = bpf_map_lookup_elem(&loads, &id);

	if (!s || !l || !usable(s, l))
		return 0;
	if (overhead(l) < best->overhead) {
		best->id = id;
		best->overhead = overhead(l);
	}
	return 0;
}

static __noinline __u32 lc_pick(struct pick *p)
{
	struct lc_best best = { .pick = p, .id = NO_SERVER, .overhead = LC_MORE_THAN_ANY };

	bpf_loop(p->count, lc_visit, &best, 0);
	return best.id;
}

#endif
