/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shortest expected delay: (active + 1) / weight, as if the new connection
 * were there already; inactive connections do not count (ip_vs_sed.c).
 */
#ifndef IMBANG_SCHED_SED_H
#define IMBANG_SCHED_SED_H

static __always_inline __s64 sed_load(const struct load *l)
{
	return (__s64)l->active + 1;
}

static long sed_visit(__u32 i, struct weighted_best *best)
{
	__u32 id = server_id_nth(best->pick, i);
	struct server *s = bpf_map_lookup_elem(&servers, &id);
	struct load *l = bpf_map_lookup_elem(&loads, &id);

	if (s && l && usable(s, l))
		weighted_offer(best, id, s->weight, sed_load(l));
	return 0;
}

static __noinline __u32 sed_pick(struct pick *p)
{
	struct weighted_best best = { .pick = p };

	weighted_none(&best);
	bpf_loop(p->count, sed_visit, &best, 0);
	return best.id;
}

#endif
