/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How entries are found: by buckets, a line each, of a control word, 14 slots and the head of a
 * chain. A slot has an entry's index (24 bits) and a tag, which is 8 bits of its flow's hash: from
 * which bit on, the control word says (TAGS_SHIFT). Further entries of a full bucket are chained:
 * each has the next one's index. An entry that leaves a slot lets the first of the chain have it.
 *
 * The number of buckets grows by one at a time (linear hashing, W. Litwin 1980), see reshape.h:
 * bucket N takes from bucket N - 2^k the entries that have bit k in their hash.
 *
 * Invariants:
 * 1. Slots of a bucket, links of its chain, and all fields of its entries but `expires` and
 *    in_packets change only while the bucket is claimed (BUCKET_CLAIMED), and by the CPU that has
 *    claimed it, or by the owner of a dead entry (conn_publish). The CPU holds the claim for one
 *    change, and leaving it changes the bucket's version.
 * 2. A claim counts for a flow if the geometry, read again under it, still says that the flow
 *    belongs to this bucket. Who changes the geometry holds the claims of all buckets that lose
 *    entries by it. So at most one CPU at a time changes what is found for a flow.
 * 3. A reader takes no claim. What it finds is proved by the entry (entry.h). That it has found
 *    nothing counts only if the bucket was not claimed, and control word and geometry were the
 *    same before and after. So it may follow the link of an entry that is in another chain by
 *    now: it takes a bounded number of steps.
 */
#ifndef IMBANG_TABLE_BUCKETS_H
#define IMBANG_TABLE_BUCKETS_H

#include "blocks.h"

/* The control word. */
#define BUCKET_CLAIMED 0x80000000U
#define TAGS_SHIFT 26 /* 5 bits */
#define BUCKET_VERSION ((1U << TAGS_SHIFT) - 1)

#define BUCKET_SLOTS 14
#define BUCKET_CHAIN 15  /* the word that has the chain's first index; 0: there is none */
#define CHAIN_LONGEST 64 /* behind so many a flow is refused */

/* The number of buckets, and in the upper half the mask for the bits of a hash: the next power
 * of two, less one. */
static __always_inline __u64 geometry_now(void)
{
	return *(volatile __u64 *)&shape.geometry;
}

static __always_inline __u32 bucket_of(__u32 hash, __u64 geometry)
{
	__u32 mask = geometry >> 32, bucket = hash & mask;

	return bucket < (__u32)geometry ? bucket : bucket & mask >> 1;
}

/* n / BLOCK_ENTRIES, for n < 2^22. */
#define ENTRIES_SHIFT 38
#define ENTRIES_RECIPROCAL (((1ULL << ENTRIES_SHIFT) + BLOCK_ENTRIES - 1) / BLOCK_ENTRIES)

static __always_inline union line *bucket_line(__u32 bucket)
{
	__u32 at = bucket * ENTRIES_RECIPROCAL >> ENTRIES_SHIFT;
	__u32 *number = bpf_map_lookup_elem(&bucket_blocks, &at);

	return number && *number
		       ? block_line(block_of(*number - 1), 1 + bucket - at * BLOCK_ENTRIES, 1)
		       : 0;
}

static __always_inline __u32 bucket_control(const union line *line)
{
	return *(volatile __u32 *)&line->word[0];
}

/* The first bit of the hash that is in a bucket's tags. */
static __always_inline __u32 tags_from(__u32 control)
{
	return control >> TAGS_SHIFT & 31;
}

/* The upper byte of a hash's slots in a bucket with this control word. */
static __always_inline __u32 tag_of(__u32 hash, __u32 control)
{
	return hash >> tags_from(control) << INDEX_BITS;
}

static __always_inline int bucket_claim_once(union line *line)
{
	__u32 control = bucket_control(line);

	return !(control & BUCKET_CLAIMED) &&
	       __sync_val_compare_and_swap(&line->word[0], control, control | BUCKET_CLAIMED) ==
		       control;
}

/* What it is without the claim. */
static __always_inline __u32 control_left(__u32 control)
{
	return (control & ~(BUCKET_CLAIMED | BUCKET_VERSION)) | ((control + 1) & BUCKET_VERSION);
}

/* Ends the claim. */
static __always_inline void bucket_leave(union line *line)
{
	__u32 control = bucket_control(line);

	barrier();
	*(volatile __u32 *)&line->word[0] = control_left(control);
}

struct claim_try {
	__u32 hash;
	__u32 bucket;
	int claimed;
};

static long bucket_claim_try(__u32 i, struct claim_try *c)
{
	union line *line;

	c->bucket = bucket_of(c->hash, geometry_now());
	line = bucket_line(c->bucket);
	if (!line)
		return 1;
	if (!bucket_claim_once(line))
		return 0;
	c->claimed = bucket_of(c->hash, geometry_now()) == c->bucket;
	if (!c->claimed)
		bucket_leave(line);
	return c->claimed;
}

static __always_inline __u32 bucket_chain(const union line *line)
{
	return *(volatile __u32 *)&line->word[BUCKET_CHAIN];
}

static __always_inline void bucket_chain_set(union line *line, __u32 index)
{
	*(volatile __u32 *)&line->word[BUCKET_CHAIN] = index;
}

/*
 * Slots, a bit each, found two at a time and without branches, of which the CPU would foresee
 * few: slot 2n has bit n, slot 2n + 1 has bit 32 + n.
 */
#define LANES(x) ((__u64)(x) << 32 | (x))
#define SLOT_BITS (0xfeULL | 0x7fULL << 32)

/* Slots with a tag. With that of 0 also empty ones: what has the index 0 is no entry (struct
 * block_head). */
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

/* Slots with an index. */
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

static __always_inline __u64 bucket_empty_slots(const union line *line)
{
	return bucket_indexed(line, 0);
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
