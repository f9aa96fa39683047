/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Never queue: the first server of the list that has no active connection,
 * however small its weight; if all are busy, as sed (ip_vs_nq.c).
 */
#ifndef IMBANG_SCHED_NQ_H
#define IMBANG_SCHED_NQ_H

static long nq_visit(__u32 i, struct weighted_best *best)
{
	__u32 id = server_id_nth(best->pick, i);
	struct server *s = bpf_map_lookup_elem(&servers, &id);
	struct load *l = bpf_map_lookup_elem(&loads, &id);

	if (!s || !l || !usable(s, l))
		return 0;
	if (!l->active) {
		best->id = id;
		return 1;
	}
	weighted_offer(best, id, s->weight, sed_load(l));
	return 0;
}

static __noinline __u32 nq_pick(struct pick *p)
{
	struct weighted_best best = { .pick = p };

	weighted_none(&best);
	bpf_loop(p->count, nq_visit, &best, 0);
	return best.id;
}

#endif
