/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Weighted overflow: as fo, but a server with more active connections than
 * its weight overflows to the next highest (ip_vs_ovf.c).
 */
#ifndef IMBANG_SCHED_OVF_H
#define IMBANG_SCHED_OVF_H

static long ovf_visit(__u32 i, struct weighted_best *best)
{
	__u32 id = server_id_nth(best->pick, i);
	struct server *s = bpf_map_lookup_elem(&servers, &id);
	struct load *l = bpf_map_lookup_elem(&loads, &id);

	if (s && l && usable(s, l) && (__s64)l->active <= s->weight && s->weight > best->weight) {
		best->id = id;
		best->weight = s->weight;
	}
	return 0;
}

static __noinline __u32 ovf_pick(struct pick *p)
{
	struct weighted_best best = { .pick = p, .id = NO_SERVER };

	bpf_loop(p->count, ovf_visit, &best, 0);
	return best.id;
}

#endif
