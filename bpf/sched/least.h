/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The server that costs least: the root of the service's tree, if there is
 * one that can be used, or else the server that a walk over the list finds.
 */
#ifndef IMBANG_SCHED_LEAST_H
#define IMBANG_SCHED_LEAST_H

#include "contract.h"
#include "cost.h"
#include "tree.h"

struct least {
	struct pick *pick;
	struct cost cost;
	enum scheduler rule;
	__u32 id;
};

/* The first is compared as the others are, with what is dearer than any. See
 * sched.h on visits. */
static __always_inline void least_none(struct least *best)
{
	best->id = NO_SERVER;
	best->cost = too_dear();
}

static __always_inline void least_offer(struct least *best, __u32 id, struct cost cost)
{
	if (!costs_less(&cost, &best->cost))
		return;
	best->id = id;
	best->cost = cost;
}

static long least_visit(__u32 i, struct least *best)
{
	__u32 id = server_id_nth(best->pick, i);

	least_offer(best, id, cost_of(best->rule, id));
	return 0;
}

/* Whether the tree knows; its root may lag behind another CPU's change. */
static __always_inline int least_known(const struct pick *p, enum scheduler rule, __u32 *id)
{
	struct tree t;

	if (!tree_for(p, rule, &t) || !tree_winner(&t, 1, id))
		return 0;
	return *id == NO_SERVER || cost_of(rule, *id).weight;
}

/* Global: for the verifier all rules are one. */
__noinline __u32 least_pick(struct pick *p, enum scheduler rule)
{
	struct least best = { .pick = p, .rule = rule };

	if (!p)
		return NO_SERVER;
	if (least_known(p, rule, &best.id))
		return best.id;
	least_none(&best);
	bpf_loop(p->count, least_visit, &best, 0);
	return best.id;
}

#endif
