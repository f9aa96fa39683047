/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Weighted least connection: the least overhead / weight (ip_vs_wlc.c).
 * Without fractions: a / w > b / v where a * v > b * w.
 *
 * sed and nq use the same comparison on another measure of load.
 */
#ifndef IMBANG_SCHED_WLC_H
#define IMBANG_SCHED_WLC_H

struct weighted_best {
	struct pick *pick;
	__u32 id;
	__s32 weight;
	__s64 load;
};

/* At first there is no server, and an infinite load per weight: to any that is
 * offered it compares as a server would. See sched.h on visits. */
static __always_inline void weighted_none(struct weighted_best *best)
{
	best->id = NO_SERVER;
	best->weight = 0;
	best->load = 1;
}

/* Takes the server as the best if its load per weight is strictly less. */
static __always_inline void weighted_offer(struct weighted_best *best, __u32 id, __s32 weight,
					   __s64 load)
{
	if (best->load * weight <= load * best->weight)
		return;
	best->id = id;
	best->weight = weight;
	best->load = load;
}

static long wlc_visit(__u32 i, struct weighted_best *best)
{
	__u32 id = server_id_nth(best->pick, i);
	struct server *s = bpf_map_lookup_elem(&servers, &id);
	struct load *l = bpf_map_lookup_elem(&loads, &id);

	if (s && l && usable(s, l))
		weighted_offer(best, id, s->weight, overhead(l));
	return 0;
}

static __noinline __u32 wlc_pick(struct pick *p)
{
	struct weighted_best best = { .pick = p };

	weighted_none(&best);
	bpf_loop(p->count, wlc_visit, &best, 0);
	return best.id;
}

#endif
