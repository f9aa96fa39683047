/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Weighted overflow: as fo, but a server with more active connections than
 * its weight overflows to the next highest (ip_vs_ovf.c).
 */
#ifndef IMBANG_SCHED_OVF_H
#define IMBANG_SCHED_OVF_H

#include "contract.h"
#include "cost.h"
#include "fo.h"

static __always_inline struct cost ovf_cost(__s32 weight, const struct load *l)
{
	return (__s64)l->active <= weight ? fo_cost(weight, l) : too_dear();
}

#endif
