/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The hash of a flow: a sum of products with secret summands (NH of UMAC, RFC 4418), and a mixer.
 * Two flows have the same sum with a probability of 2^-32, whatever flows a client chooses without
 * the secret. The mixer is a bijection; it spreads flows that differ in few bits over all bits.
 */
#ifndef IMBANG_TABLE_HASH_H
#define IMBANG_TABLE_HASH_H

#include "../flow.h"
#include "../maps.h"

static __always_inline __u64 hash_mix(__u64 h)
{
	h ^= h >> 32;
	h *= 0xd6e8feb86659fd93ULL;
	h ^= h >> 32;
	h *= 0xd6e8feb86659fd93ULL;
	return h ^ h >> 32;
}

static __always_inline __u64 hash_words(const __u64 *key, __u32 n)
{
	__u64 sum = 0;

#pragma unroll
	for (__u32 i = 0; i < n; i++)
		sum += (__u64)((__u32)key[i] + config.hash.summand[2 * i]) *
		       ((__u32)(key[i] >> 32) + config.hash.summand[2 * i + 1]);
	return hash_mix(sum);
}

static __always_inline __u64 hash4(const struct flow4 *flow)
{
	return hash_words((const void *)flow, sizeof(*flow) / 8);
}

static __always_inline __u64 hash6(const struct flow *flow)
{
	return hash_words((const void *)flow, sizeof(*flow) / 8);
}

static __always_inline __u64 key_hash(const union conn_key *key, __u8 family)
{
	return family == AF_INET6 ? hash6(&key->six) : hash4(&key->four);
}

#endif
