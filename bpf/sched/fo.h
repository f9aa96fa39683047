/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Weighted fail over: the server of the highest weight that is below its
 * threshold; the first of the list on a tie (ip_vs_fo.c).
 */
#ifndef IMBANG_SCHED_FO_H
#define IMBANG_SCHED_FO_H

#include "contract.h"
#include "cost.h"

static __always_inline struct cost fo_cost(__s32 weight, const struct load *l)
{
	struct cost cost = { .load = 1, .weight = weight };

	return cost;
}

#endif
