/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Least connection: the least overhead, whatever the weights; the first of
 * the list on a tie (ip_vs_lc.c).
 */
#ifndef IMBANG_SCHED_LC_H
#define IMBANG_SCHED_LC_H

#include "contract.h"
#include "cost.h"

static __always_inline struct cost lc_cost(__s32 weight, const struct load *l)
{
	struct cost cost = { .load = overhead(l), .weight = 1 };

	return cost;
}

#endif
