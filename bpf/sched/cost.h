/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Most schedulers look for the server that costs least: load / weight, each
 * by its own measure, NAME_cost. Without fractions: a / v < b / w where
 * a * w < b * v. On a tie the first in Linux's list has it.
 */
#ifndef IMBANG_SCHED_COST_H
#define IMBANG_SCHED_COST_H

#include "contract.h"

struct cost {
	__s64 load;
	__s64 weight; /* 0: more than any */
};

static __always_inline struct cost too_dear(void)
{
	struct cost cost = { .load = 1, .weight = 0 };

	return cost;
}

static __always_inline int costs_less(const struct cost *a, const struct cost *b)
{
	return a->load * b->weight < b->load * a->weight;
}

#endif
