/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Buckets: a line each, of a control word, 14 slots and the head of a chain; a slot has an entry's
 * index (24 bits) and a tag, which is 8 bits of its flow's hash. Their number grows by one at a
 * time (linear hashing): bucket N takes from bucket N - 2^k the entries that have bit k in their
 * hash. Entries do not move.
 *
 * Further entries of a full bucket are chained: each has the next one's index. An entry that leaves
 * a slot lets the first of the chain have it.
 *
 * Invariants:
 * 1. Slots of a bucket and links of its chain are changed only by the CPU that has
 *    claimed the bucket (BUCKET_CLAIMED, by compare-and-swap), which holds it for the time of one
 *    change, with softirqs off. Leaving a claim changes the bucket's version.
 * 2. A claim counts for a flow if the geometry, read again under it, still says that the flow
 *    belongs to this bucket. A split changes the geometry under the claim of the bucket that it
 *    splits, a merge under those of both. So at most one CPU at a time changes what is found for
 *    a flow.
 * 3. A split fills the new bucket, which no CPU can claim yet, then publishes the geometry, then
 *    clears the old one: at each moment a reader that uses either geometry finds each entry of a
 *    slot. Until then the old one, still claimed, may have entries that have ended and are free.
 *    What is chained leaves the old bucket before that, since links of entries that have ended
 *    may be others'; a reader does not find it for so long, and tries again.
 * 4. A reader takes no claim. What it finds is proved by the entry (pages.bpf.c). That it has found
 *    nothing counts only if the bucket's control word was the same before and after, and was not
 *    claimed, and the geometry is the same. So a reader may follow the link of an entry that is
 *    in another chain by now: it takes a bounded number of steps.
 */
#ifndef PROTOTYPE_BUCKETS_H
#define PROTOTYPE_BUCKETS_H

#include "bits.h"
#include "pages.h"

#define BUCKET_CLAIMED 0x80000000U
#define BUCKET_VERSION 0x7fffffffU
#define BUCKET_SLOTS 14
#define BUCKET_CHAIN 15  /* the word that has the chain's first index; 0: there is none */
#define CHAIN_LONGEST 64 /* behind so many a flow is refused */
#define CHAIN_STEPS (CHAIN_LONGEST + 1)
#define CLAIM_TRIES 4096 /* about 20 us */

struct shape {
	/* The number of buckets, and in the upper half the mask for the bits of a hash: the next
	 * power of two, less one. 0: there is no table yet. */
	__u64 geometry;
	/* PAGES_BOTH: from this block of buckets on they are in the hash, whatever the process
	 * adds later. It is set before the geometry names one of them. */
	__u32 hashed_from;
};

struct shape shape __attribute__((aligned(64))) = { .hashed_from = ~0U };
__u32 splitting __attribute__((aligned(64))); /* a CPU splits: one at a time */

/* n / BLOCK_LINES for n < 2^22. */
#define LINES_SHIFT 38
#define LINES_RECIPROCAL (((1ULL << LINES_SHIFT) + BLOCK_LINES - 1) / BLOCK_LINES)

static __always_inline union line *bucket_line(__u32 bucket)
{
	__u32 number = bucket * LINES_RECIPROCAL >> LINES_SHIFT;
	void *block = 0;

#if PAGES != PAGES_HASH
	__u32 page = number >> PAGE_BITS;

	if (PAGES == PAGES_ARRAY || number < *(volatile __u32 *)&shape.hashed_from) {
		block = page_block(bpf_map_lookup_elem(&bucket_pages, &page), number);
		return block_line(block, bucket - number * BLOCK_LINES);
	}
#endif
#if PAGES != PAGES_ARRAY
	block = bpf_map_lookup_elem(&bucket_blocks, &number);
#endif
	return block_line(block, bucket - number * BLOCK_LINES);
}

/* Has a program add a block of buckets, of which this is the first. The caller splits. */
__noinline long bucket_block_add(__u32 bucket)
{
#if PAGES != PAGES_ARRAY
	__u32 number = bucket * LINES_RECIPROCAL >> LINES_SHIFT, zero = 0;
	struct block *empty = bpf_map_lookup_elem(&zero_block, &zero);
	long rc = -ENOMEM;

	if (empty)
		rc = bpf_map_update_elem(&bucket_blocks, &number, empty, BPF_NOEXIST);
	if (!rc && number < shape.hashed_from)
		*(volatile __u32 *)&shape.hashed_from = number;
	return rc;
#else
	return -ENOMEM;
#endif
}

static __always_inline __u64 geometry_now(void)
{
	return *(volatile __u64 *)&shape.geometry;
}

static __always_inline __u32 bucket_of(__u32 hash, __u64 g)
{
	__u32 mask = g >> 32, bucket = hash & mask;

	return bucket < (__u32)g ? bucket : bucket & mask >> 1;
}

/* The upper byte of a slot: never 0, which an empty one has. */
static __always_inline __u32 tag_of(__u64 hash)
{
	__u32 tag = hash >> 56;

	return (tag + !tag) << INDEX_BITS;
}

static __always_inline __u32 bucket_control(const union line *line)
{
	return *(volatile __u32 *)&line->word[0];
}

static __always_inline int bucket_claim_once(union line *line)
{
	__u32 control = bucket_control(line);

	return !(control & BUCKET_CLAIMED) &&
	       __sync_val_compare_and_swap(&line->word[0], control, control | BUCKET_CLAIMED) ==
		       control;
}

/* Under the claim, which ends. */
static __always_inline void bucket_leave(union line *line)
{
	__u32 control = bucket_control(line);

	barrier();
	*(volatile __u32 *)&line->word[0] = (control + 1) & BUCKET_VERSION;
}

static __always_inline __u32 bucket_chain(const union line *line)
{
	return *(volatile __u32 *)&line->word[BUCKET_CHAIN];
}

static __always_inline void bucket_chain_set(union line *line, __u32 index)
{
	*(volatile __u32 *)&line->word[BUCKET_CHAIN] = index;
}

struct claim {
	__u32 hash;
	__u32 bucket; /* claimed */
	int claimed;
};

static long claim_try(__u32 i, struct claim *c)
{
	__u32 bucket = bucket_of(c->hash, geometry_now());
	union line *line = bucket_line(bucket);

	if (!line)
		return 1;
	if (!bucket_claim_once(line))
		return 0;
	if (bucket_of(c->hash, geometry_now()) != bucket) {
		bucket_leave(line);
		return 0;
	}
	c->bucket = bucket;
	c->claimed = 1;
	return 1;
}

/* Claims the bucket of a hash. */
static __always_inline union line *bucket_claim(__u32 hash)
{
	__u32 bucket = bucket_of(hash, geometry_now());
	union line *line = bucket_line(bucket);
	struct claim c = { .hash = hash };

	if (!line)
		return 0;
	if (bucket_claim_once(line)) {
		if (bucket_of(hash, geometry_now()) == bucket)
			return line;
		bucket_leave(line);
	}
	bpf_loop(CLAIM_TRIES, claim_try, &c, 0);
	return c.claimed ? bucket_line(c.bucket) : 0;
}

/*
 * Slots, a bit each, found two at a time and without branches, of which the CPU would foresee few:
 * slot 2n has bit n, slot 2n + 1 has bit 32 + n.
 */
#define LANES(x) ((__u64)(x) << 32 | (x))
#define SLOT_BITS (0xfeULL | 0x7fULL << 32)

/* Slots with a tag; 0: empty ones. */
static __always_inline __u64 bucket_tagged(const union line *line, __u32 tag)
{
	__u64 wanted = LANES(tag >> INDEX_BITS), found = 0;

#pragma unroll
	for (__u32 n = 0; n < 8; n++) {
		__u64 pair = *(volatile __u64 *)&line->whole[n];
		__u64 differs = (pair >> INDEX_BITS & LANES(0xff)) ^ wanted;

		found |= ((LANES(0x100) - differs) & LANES(0x100)) >> 8 << n;
	}
	return found & SLOT_BITS;
}

/* The slot that has an index. */
static __always_inline __u64 bucket_indexed(const union line *line, __u32 index)
{
	__u64 wanted = LANES(index), found = 0;

#pragma unroll
	for (__u32 n = 0; n < 8; n++) {
		__u64 pair = *(volatile __u64 *)&line->whole[n];
		__u64 differs = (pair & LANES(INDEX_MASK)) ^ wanted;

		found |= ((LANES(INDEX_MASK + 1) - differs) & LANES(INDEX_MASK + 1)) >>
			 INDEX_BITS << n;
	}
	return found & SLOT_BITS;
}

/* The first of them. */
static __always_inline __u32 slot_first(__u64 slots)
{
	__u32 bit = lowest_bit(slots);

	return (bit & 7) << 1 | bit >> 5;
}

static __always_inline __u32 bucket_word(const union line *line, __u32 at)
{
	asm volatile("" : "+r"(at));
	return *(volatile __u32 *)&line->word[at & 15];
}

static __always_inline void bucket_set(union line *line, __u32 at, __u32 word)
{
	asm volatile("" : "+r"(at));
	*(volatile __u32 *)&line->word[at & 15] = word;
}

#endif
