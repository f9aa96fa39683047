/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shortest expected delay: (active + 1) / weight, as if the new connection
 * were there already; inactive connections do not count (ip_vs_sed.c).
 */
#ifndef IMBANG_SCHED_SED_H
#define IMBANG_SCHED_SED_H

#include "contract.h"
#include "cost.h"

static __always_inline struct cost sed_cost(__s32 weight, const struct load *l)
{
	struct cost cost = { .load = (__s64)l->active + 1, .weight = weight };

	return cost;
}

#endif
