/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Weighted fail over: the server of the highest weight that is below its
 * threshold; the first of the list on a tie (ip_vs_fo.c).
 */
#ifndef IMBANG_SCHED_FO_H
#define IMBANG_SCHED_FO_H

static long fo_visit(__u32 i, struct weighted_best *best)
{
	__u32 id = server_id_nth(best->pick, i);
	struct server *s = bpf_map_lookup_elem(&servers, &id);
	struct load *l = bpf_map_lookup_elem(&loads, &id);

	if (s && l && !l->overloaded && s->weight > best->weight) {
		best->id = id;
		best->weight = s->weight;
	}
	return 0;
}

static __noinline __u32 fo_pick(struct pick *p)
{
	struct weighted_best best = { .pick = p, .id = NO_SERVER };

	bpf_loop(p->count, fo_visit, &best, 0);
	return best.id;
}

#endif
