/* SPDX-License-Identifier: GPL-2.0-only */
/* Random numbers. */
#ifndef IMBANG_RNG_H
#define IMBANG_RNG_H

#include "hook.h"
#include "kernel.h"

static __always_inline __u32 random_u32(void)
{
	return VIRTUAL_RANDOM(bpf_get_prandom_u32());
}

#endif
