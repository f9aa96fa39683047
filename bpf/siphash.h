/* SPDX-License-Identifier: GPL-2.0-only */
/* SipHash (Aumasson and Bernstein, INDOCRYPT 2012): one round of it, on v0 to v3, and the hash of
 * a flow. */
#ifndef IMBANG_SIPHASH_H
#define IMBANG_SIPHASH_H

#include "address.h"
#include "kernel.h"
#include "maps.h"

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

static __always_inline __u64 siphash_pair(const union address *a, __u32 i)
{
	return (__u64)a->word[i] << 32 | a->word[i + 1];
}

/* The low half of the hash of a flow and a number, by the director's secret. Global, so that
 * the verifier walks it once. */
__noinline __u32 siphash_flow(const struct flow *flow, __u32 number)
{
	const struct secret *key = &config.secret;
	__u64 v0, v1, v2, v3, last;

	if (!flow)
		return 0;
	v0 = SIPHASH_0 ^ key->word[0];
	v1 = SIPHASH_1 ^ key->word[1];
	v2 = SIPHASH_2 ^ key->word[0];
	v3 = SIPHASH_3 ^ key->word[1];
	last = (__u64)flow->sport << 48 | (__u64)flow->dport << 32 | number;
	if (flow->family == AF_INET) {
		SIPHASH_WORD((__u64)address_to4(&flow->src) << 32 | address_to4(&flow->dst));
	} else {
		SIPHASH_WORD(siphash_pair(&flow->src, 0));
		SIPHASH_WORD(siphash_pair(&flow->src, 2));
		SIPHASH_WORD(siphash_pair(&flow->dst, 0));
		SIPHASH_WORD(siphash_pair(&flow->dst, 2));
	}
	SIPHASH_WORD(last);
	/* In place of the length: two families, two lengths. */
	last = (__u64)flow->family << 56;
	SIPHASH_WORD(last);
	v2 ^= 0xff;
	SIPHASH_ROUND;
	SIPHASH_ROUND;
	SIPHASH_ROUND;
	SIPHASH_ROUND;
	return v0 ^ v1 ^ v2 ^ v3;
}

#endif
