/* SPDX-License-Identifier: GPL-2.0-only */
/* The flows that the prototypes open and find, by number, and their keyed hash. */
#ifndef PROTOTYPE_FLOWS_H
#define PROTOTYPE_FLOWS_H

#include "kernel.h"
#include "types.h"
#include "siphash.h"

/* Drawn by the driver before the object is loaded. */
const volatile __u32 secret[4] = {};
const volatile __u64 siphash_key[2] = {};

#define ADDRESS_BITS 14 /* flows of 16 384 client addresses */

static __always_inline void flow_number(__u32 n, struct flow4 *f)
{
	f->src = bpf_htonl(0x0a000000 + (n & ((1 << ADDRESS_BITS) - 1)));
	f->dst = bpf_htonl(0xc0000201);
	f->sport = bpf_htons(1024 + (n >> ADDRESS_BITS));
	f->dport = bpf_htons(80);
	f->protocol = IPPROTO_TCP;
	f->template = 0;
	f->pad[0] = 0;
	f->pad[1] = 0;
}

union flow_words {
	struct flow4 flow;
	__u32 half[4];
	__u64 whole[2];
};

static __always_inline __u64 flow_mix(__u64 h)
{
	h ^= h >> 32;
	h *= 0xd6e8feb86659fd93ULL;
	h ^= h >> 32;
	h *= 0xd6e8feb86659fd93ULL;
	return h ^ h >> 32;
}

/*
 * A sum of products with secret summands (NH of UMAC): two flows have the same sum with a
 * probability of 2^-32, whatever flows a client chooses without the secret. The mixer is a
 * bijection; it spreads flows that differ in few bits over all bits of the result.
 */
static __always_inline __u64 flow_hash(const struct flow4 *f)
{
	const union flow_words *w = (const void *)f;

	return flow_mix((__u64)(w->half[0] + secret[0]) * (w->half[1] + secret[1]) +
			(__u64)(w->half[2] + secret[2]) * (w->half[3] + secret[3]));
}

/* The alternative: SipHash-2-4, as far as it depends on the flow. */
static __always_inline __u64 flow_siphash(const struct flow4 *f)
{
	const union flow_words *w = (const void *)f;
	__u64 v0 = siphash_key[0] ^ 0x736f6d6570736575ULL;
	__u64 v1 = siphash_key[1] ^ 0x646f72616e646f6dULL;
	__u64 v2 = siphash_key[0] ^ 0x6c7967656e657261ULL;
	__u64 v3 = siphash_key[1] ^ 0x7465646279746573ULL;

	SIPHASH_WORD(w->whole[0]);
	SIPHASH_WORD(w->whole[1]);
	SIPHASH_WORD(16ULL << 56);
	v2 ^= 0xff;
	SIPHASH_ROUND;
	SIPHASH_ROUND;
	SIPHASH_ROUND;
	SIPHASH_ROUND;
	return v0 ^ v1 ^ v2 ^ v3;
}

static __always_inline int flow_is(const struct flow4 *a, const struct flow4 *b)
{
	const union flow_words *x = (const void *)a, *y = (const void *)b;

	return x->whole[0] == y->whole[0] && x->whole[1] == y->whole[1];
}

/* 0, which the verifier does not know: a search that begins with it is not walked for each of its
 * visits. */
__u32 zero_of_memory;

static __always_inline __u32 unknown_zero(void)
{
	return *(volatile __u32 *)&zero_of_memory;
}

/* 1 for a value that is not 0: by arithmetic, so that what follows waits for the value. */
static __always_inline __u64 truth(__u64 value)
{
	asm volatile("" : "+r"(value));
	return (value | -value) >> 63;
}

#endif
