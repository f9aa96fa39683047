/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Power of two choices: of two servers drawn at random, each in proportion to
 * its weight, the less loaded for its weight; the first drawn on a tie
 * (ip_vs_twos.c; Mitzenmacher, "The power of two choices in randomized load
 * balancing", 2001).
 */
#ifndef IMBANG_SCHED_TWOS_H
#define IMBANG_SCHED_TWOS_H

#include "contract.h"

#define twos_tree(count) SCHED_NONE
#define twos_changed unchanging

struct twos_sum {
	struct pick *pick;
	__u64 weights;
};

static long twos_weigh(__u32 i, struct twos_sum *sum)
{
	__u32 id = server_id_nth(sum->pick, i);
	struct server *s = server_of(id);
	struct load *l = load_of(id);

	/* The verifier gives up following how far a plain sum may go, and does
	 * not try with an atomic one. */
	if (s && l && usable(s, l))
		__sync_fetch_and_add(&sum->weights, (__u64)s->weight);
	return 0;
}

struct twos_draw {
	struct pick *pick;
	__u64 ticket; /* less the weights that were passed */
	__u32 id;
	__s32 weight;
	__s64 overhead;
};

static long twos_visit(__u32 i, struct twos_draw *draw)
{
	__u32 id = server_id_nth(draw->pick, i);
	struct server *s = server_of(id);
	struct load *l = load_of(id);

	if (!s || !l || !usable(s, l))
		return 0;
	/* Weights may change meanwhile: then the last one has it. */
	draw->id = id;
	draw->weight = s->weight;
	draw->overhead = overhead(l);
	if (draw->ticket <= (__u32)s->weight)
		return 1;
	__sync_fetch_and_sub(&draw->ticket, (__u64)s->weight);
	return 0;
}

/* Linux draws from 0 to the sum of weights, both included, so that the first
 * server of the list is drawn for one value more. */
static __always_inline void twos_draw_one(struct pick *p, __u64 weights, struct twos_draw *draw)
{
	draw->pick = p;
	draw->ticket = random_u32() * (weights + 1) >> 32;
	draw->id = NO_SERVER;
	bpf_loop(p->count, twos_visit, draw, 0);
}

static __noinline __u32 twos_pick(struct pick *p)
{
	struct twos_sum sum = { .pick = p };
	struct twos_draw one = {}, two = {};

	bpf_loop(p->count, twos_weigh, &sum, 0);
	if (!sum.weights)
		return NO_SERVER;
	twos_draw_one(p, sum.weights, &one);
	twos_draw_one(p, sum.weights, &two);
	return two.weight * one.overhead > one.weight * two.overhead ? two.id : one.id;
}

#endif
