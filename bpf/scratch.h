/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Memory of the program that runs, of each CPU.
 */
#ifndef IMBANG_SCRATCH_H
#define IMBANG_SCRATCH_H

#include "maps.h"

static __always_inline struct scratch *get_scratch(enum scratch_slot slot)
{
	__u32 key = slot;

	return bpf_map_lookup_elem(&scratch, &key);
}

/* That of a packet, or of a question. */
static __always_inline struct scratch *scratch_of(__u8 peek)
{
	return get_scratch(peek ? SCRATCH_PROCESS : SCRATCH_PACKET);
}

#endif
