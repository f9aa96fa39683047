/* SPDX-License-Identifier: GPL-2.0-only */
/* Bits of a word, without instructions that BPF has not. */
#ifndef PROTOTYPE_BITS_H
#define PROTOTYPE_BITS_H

#include "kernel.h"

/* The number of the lowest bit: by a product in which each power of two leaves other bits on
 * top (a de Bruijn sequence). */
static const __u8 lowest_table[64] = {
	0,  1,  2,  53, 3,  7,  54, 27, 4,  38, 41, 8,  34, 55, 48, 28, 62, 5,  39, 46, 44, 42,
	22, 9,  24, 35, 59, 56, 49, 18, 29, 11, 63, 52, 6,  26, 37, 40, 33, 47, 61, 45, 43, 21,
	23, 58, 17, 10, 51, 25, 36, 32, 60, 20, 57, 16, 50, 31, 19, 15, 30, 14, 13, 12,
};

static __always_inline __u32 lowest_bit(__u64 bits)
{
	return lowest_table[((bits & -bits) * 0x022fdd63cc95386dULL) >> 58];
}

static __always_inline __u32 popular(__u64 bits)
{
	bits -= bits >> 1 & 0x5555555555555555ULL;
	bits = (bits & 0x3333333333333333ULL) + (bits >> 2 & 0x3333333333333333ULL);
	bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return bits * 0x0101010101010101ULL >> 56;
}

#endif
