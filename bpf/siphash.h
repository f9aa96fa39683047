/* SPDX-License-Identifier: GPL-2.0-only */
/* One round of SipHash (Aumasson and Bernstein, INDOCRYPT 2012), on v0 to v3. */
#ifndef IMBANG_SIPHASH_H
#define IMBANG_SIPHASH_H

#include "kernel.h"

#define SIPHASH_0 0x736f6d6570736575ULL
#define SIPHASH_1 0x646f72616e646f6dULL
#define SIPHASH_2 0x6c7967656e657261ULL
#define SIPHASH_3 0x7465646279746573ULL

static __always_inline __u64 siphash_rotate(__u64 v, __u32 by)
{
	return v << by | v >> (64 - by);
}

#define SIPHASH_ROUND                        \
	do {                                 \
		v0 += v1;                    \
		v1 = siphash_rotate(v1, 13); \
		v1 ^= v0;                    \
		v0 = siphash_rotate(v0, 32); \
		v2 += v3;                    \
		v3 = siphash_rotate(v3, 16); \
		v3 ^= v2;                    \
		v0 += v3;                    \
		v3 = siphash_rotate(v3, 21); \
		v3 ^= v0;                    \
		v2 += v1;                    \
		v1 = siphash_rotate(v1, 17); \
		v1 ^= v2;                    \
		v2 = siphash_rotate(v2, 32); \
	} while (0)

/* Takes a word in, as SipHash-2-4 does. */
#define SIPHASH_WORD(word)     \
	do {                   \
		v3 ^= (word);  \
		SIPHASH_ROUND; \
		SIPHASH_ROUND; \
		v0 ^= (word);  \
	} while (0)

#endif
