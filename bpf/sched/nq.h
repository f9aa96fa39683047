/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Never queue: the first server of the list that has no active connection,
 * however small its weight; if all are busy, as sed (ip_vs_nq.c).
 */
#ifndef IMBANG_SCHED_NQ_H
#define IMBANG_SCHED_NQ_H

#include "contract.h"
#include "cost.h"
#include "sed.h"

static __always_inline struct cost nq_cost(__s32 weight, const struct load *l)
{
	struct cost idle = { .load = 0, .weight = 1 };

	return l->active ? sed_cost(weight, l) : idle;
}

#endif
