/* SPDX-License-Identifier: GPL-2.0-only */
/* Weighted least connection: the least overhead / weight (ip_vs_wlc.c). */
#ifndef IMBANG_SCHED_WLC_H
#define IMBANG_SCHED_WLC_H

#include "contract.h"
#include "cost.h"

static __always_inline struct cost wlc_cost(__s32 weight, const struct load *l)
{
	struct cost cost = { .load = overhead(l), .weight = weight };

	return cost;
}

#endif
