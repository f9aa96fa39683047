/* SPDX-License-Identifier: GPL-2.0-only */
/* Bits of a word, and values of which the verifier knows less. */
#ifndef IMBANG_TABLE_BITS_H
#define IMBANG_TABLE_BITS_H

#include "../maps.h"

/* How many bits are set: BPF has no instruction for it. */
static __always_inline __u32 bits_of(__u64 word)
{
	word -= word >> 1 & 0x5555555555555555ULL;
	word = (word & 0x3333333333333333ULL) + (word >> 2 & 0x3333333333333333ULL);
	word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return word * 0x0101010101010101ULL >> 56;
}

/* The number of the lowest bit, likewise. */
static __always_inline __u32 lowest_bit(__u64 bits)
{
	return bits_of((bits & -bits) - 1);
}

/* 1 for a value that is not 0: by arithmetic, so that no branch waits for it. */
static __always_inline __u64 truth(__u64 value)
{
	asm volatile("" : "+r"(value));
	return (value | -value) >> 63;
}

/* 1 if one time is not after another [ns], likewise. */
static __always_inline __u64 not_after(__u64 a, __u64 b)
{
	return ((b - a) >> 63) ^ 1;
}

/* 0, which the verifier does not know: a search that begins with it is not walked for each of
 * its steps. */
static __always_inline __u32 unknown_zero(void)
{
	return *(volatile __u32 *)&blocks.zero;
}

#endif
