/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The number of buckets follows that of entries: one bucket at a time is split or merged, so
 * no packet waits for more. One CPU does so at a time (`reshaping`).
 *
 * A split fills the new bucket, then publishes the geometry, then clears the old one, all under the
 * claims of both: at each moment a reader that uses either geometry finds each entry of a slot.
 * It goes by the tags and reads no entry, of which each may be in memory that is far away; new tags
 * take that, for which a reader may have to try again.
 * What is chained leaves the old bucket before the geometry is published, since the links of
 * entries that have ended meanwhile may be others'; a reader does not find it for so long, and
 * tries again. A merge enters everything in the lower bucket, then publishes the geometry, then
 * clears the upper one, likewise.
 *
 * A bucket that was merged keeps its line: CPUs with the former geometry may still claim it. Only a
 * process takes it away, behind a barrier (trim.h).
 */
#ifndef IMBANG_TABLE_RESHAPE_H
#define IMBANG_TABLE_RESHAPE_H

#include "entry.h"

/* The two buckets of a split or merge, which differ by one bit of the hash. On the stack, so that
 * each step has their lines without looking them up. */
struct reshape {
	union line *from;
	union line *to;
	__u32 lower;
	__u32 upper;
	__u32 bit;
	__u32 at;   /* the slot, or the entry of the chain, that is looked at */
	__u32 last; /* of the chain, one that stays; 0: none yet */
};

/* A bucket has the same tags after so many splits: then 6 of their 8 bits distinguish its entries.
 * New ones need a look at each entry. */
#define TAGS_SPLITS 3
#define TAG_BITS 8

struct retagging {
	union line *line;
	__u64 slots; /* that are still to be looked at */
	__u32 control;
};

static long retag_slot(__u32 i, struct retagging *r)
{
	__u32 at = slot_first(r->slots), word = bucket_word(r->line, at);
	struct conn *c = entry_far(word);

	if (!r->slots)
		return 1;
	r->slots &= r->slots - 1;
	if (c)
		bucket_set(r->line, at, (word & INDEX_MASK) | tag_of(c->hash, r->control));
	return 0;
}

/* Has the tags of a bucket that is claimed begin with this bit of the hash. */
static __noinline int bucket_retag(union line *line, __u32 from)
{
	struct retagging r = { .line = line };

	r.control = (bucket_control(line) & (BUCKET_CLAIMED | BUCKET_VERSION)) | from << TAGS_SHIFT;
	r.slots = SLOT_BITS & ~bucket_empty_slots(line);
	*(volatile __u32 *)&line->word[0] = r.control;
	bpf_loop(BUCKET_SLOTS, retag_slot, &r, 0);
	return 0;
}

/* The bits of two slots that have a bit of the tag, which is one of a word. The control word and
 * the chain are no slots. */
static __always_inline __u64 split_mask(__u64 pair, __u32 n, __u32 bit)
{
	__u64 mask = (pair >> bit & LANES(1)) * 0xffffffff;

	if (!n)
		mask &= ~0xffffffffULL;
	return n == 7 ? mask & 0xffffffff : mask;
}

/* Copies slots with a bit of the tag to another bucket, which is empty. */
static __always_inline void split_copy(const union line *from, union line *to, __u32 bit)
{
#pragma unroll
	for (__u32 n = 0; n < 8; n++) {
		__u64 pair = *(volatile __u64 *)&from->whole[n];

		*(volatile __u64 *)&to->whole[n] |= pair & split_mask(pair, n, bit);
	}
}

/* And takes them away. */
static __always_inline void split_clear(union line *from, __u32 bit)
{
#pragma unroll
	for (__u32 n = 0; n < 8; n++) {
		__u64 pair = *(volatile __u64 *)&from->whole[n];

		*(volatile __u64 *)&from->whole[n] = pair & ~split_mask(pair, n, bit);
	}
}

/* Enters an entry of one bucket in the other one. */
static __always_inline void reshape_enter(union line *to, struct conn *c, __u32 index)
{
	__u64 empty = bucket_empty_slots(to);

	if (empty) {
		bucket_set(to, slot_first(empty), tag_of(c->hash, bucket_control(to)) | index);
		return;
	}
	chain_enter(to, c, index);
}

static long split_chain(__u32 i, struct reshape *s)
{
	struct conn *c = s->at ? entry_far(s->at) : 0, *last;
	__u32 index = s->at, next;

	if (!c)
		return 1;
	next = entry_next(c);
	s->at = next;
	if (!(c->hash & s->bit)) {
		s->last = index;
		return 0;
	}
	last = s->last ? entry_far(s->last) : 0;
	if (last)
		entry_link(last, next);
	else
		bucket_chain_set(s->from, next);
	reshape_enter(s->to, c, index);
	return 0;
}

/* Lets the chain's first have a slot. */
static long split_refill(__u32 i, struct reshape *s)
{
	__u64 empty = bucket_empty_slots(s->from);

	if (!empty || !bucket_chain(s->from))
		return 1;
	slot_refill(s->from, slot_first(empty));
	return 0;
}

/* Publishes the geometry: all that was written is seen before it. */
static __always_inline void geometry_set(__u64 was, __u32 buckets, __u32 mask)
{
	__sync_val_compare_and_swap(&shape.geometry, was, (__u64)mask << 32 | buckets);
}

/* A line of a block that is to have buckets: whatever it had, it is not claimed. */
static long bucket_unclaim(__u32 i, __u32 *number)
{
	union line *line = block_line(block_of(*number), 1 + i, 1);

	if (line)
		line->word[0] = BUCKETS_BIT << TAGS_SHIFT;
	return 0;
}

/* A block for buckets from this one on: 0, or an error. */
static __noinline int bucket_block_add(__u32 bucket)
{
	__u32 at = bucket / BLOCK_ENTRIES, number;
	__u32 *block = bpf_map_lookup_elem(&bucket_blocks, &at);
	struct block_head *head;

	if (!block)
		return -ENOMEM;
	if (bucket_line(bucket))
		return 0;
	number = block_take(BLOCK_BUCKETS);
	head = number == NO_BLOCK ? 0 : block_head(number);
	if (!head)
		return -ENOMEM;
	bpf_loop(BLOCK_ENTRIES, bucket_unclaim, &number, 0);
	block_become(head, BLOCK_BUCKETS);
	head->bucket = bucket;
	*block = number + 1;
	return 0;
}

/* Empties a bucket that is claimed, and has its tags begin with this bit of the hash. */
static __always_inline void bucket_clean(union line *line, __u32 tags)
{
	__u32 rest = bucket_control(line) & (BUCKET_CLAIMED | BUCKET_VERSION);

	*(volatile __u32 *)&line->word[0] = rest | tags << TAGS_SHIFT;
#pragma unroll
	for (__u32 i = 1; i < LINE_BYTES / 4; i++)
		*(volatile __u32 *)&line->word[i] = 0;
}

/* Makes the first buckets: 0, or an error. */
static __always_inline int table_begin(void)
{
	if (geometry_now())
		return 0;
	if (bucket_block_add(0))
		return -ENOMEM;
	shape.most = BUCKETS_LEAST;
	shape.geometry = (__u64)(BUCKETS_LEAST - 1) << 32 | BUCKETS_LEAST;
	return 0;
}

/* Grows by one bucket: 1, or 0. */
static __always_inline int split(void)
{
	__u64 geometry = geometry_now();
	__u32 number = geometry, mask = geometry >> 32, level, tags;
	struct reshape s = { .last = unknown_zero() };
	union line *from, *to;

	if (number > mask)
		mask = mask << 1 | 1;
	s.bit = (mask + 1) >> 1;
	level = lowest_bit(s.bit);
	s.upper = number;
	s.lower = number - s.bit;
	if (bucket_block_add(s.upper))
		return 0;
	to = bucket_line(s.upper);
	from = bucket_line(s.lower);
	if (!to || !from || !bucket_claim_once(from))
		return 0;
	/* A CPU that knows of an earlier bucket there may claim it. */
	if (!bucket_claim_once(to)) {
		bucket_leave(from);
		return 0;
	}
	s.from = from;
	s.to = to;
	if (level - tags_from(bucket_control(from)) >= TAG_BITS)
		bucket_retag(from, level);
	tags = tags_from(bucket_control(from));
	bucket_clean(to, tags);
	split_copy(from, to, INDEX_BITS + level - tags);
	s.at = bucket_chain(from);
	if (s.at)
		bpf_loop(CHAIN_LONGEST + 1, split_chain, &s, 0);
	geometry_set(geometry, number + 1, mask);
	if (shape.most <= number)
		shape.most = number + 1;
	split_clear(from, INDEX_BITS + level - tags);
	if (bucket_chain(from))
		bpf_loop(BUCKET_SLOTS, split_refill, &s, 0);
	if (level + 1 - tags >= TAGS_SPLITS) {
		bucket_retag(from, level + 1);
		bucket_retag(to, level + 1);
	}
	bucket_leave(to);
	bucket_leave(from);
	return 1;
}

/* Enters a slot's entry of the upper bucket in the lower one. */
static long merge_slot(__u32 i, struct reshape *s)
{
	__u32 index = bucket_word(s->from, s->at++) & INDEX_MASK;
	struct conn *c = index ? entry_far(index) : 0;

	if (c)
		reshape_enter(s->to, c, index);
	return 0;
}

/* Likewise, the chain's. */
static long merge_chain(__u32 i, struct reshape *s)
{
	struct conn *c = s->at ? entry_far(s->at) : 0;
	__u32 index = s->at;

	if (!c)
		return 1;
	s->at = entry_next(c);
	chain_enter(s->to, c, index);
	return 0;
}

/* Shrinks by one bucket: 1, or 0. */
static __always_inline int merge(void)
{
	__u64 geometry = geometry_now();
	__u32 number = (__u32)geometry - 1, mask = geometry >> 32, level;
	struct reshape s = { .upper = number };
	union line *from, *to;

	if (number < BUCKETS_LEAST)
		return 0;
	s.bit = (mask + 1) >> 1;
	level = lowest_bit(s.bit);
	s.lower = number - s.bit;
	s.at = 1 + unknown_zero();
	to = bucket_line(s.lower);
	from = bucket_line(s.upper);
	if (!to || !from || !bucket_claim_once(to))
		return 0;
	if (!bucket_claim_once(from)) {
		bucket_leave(to);
		return 0;
	}
	s.from = from;
	s.to = to;
	if (tags_from(bucket_control(to)) > level) /* the next split goes by that bit */
		bucket_retag(to, level);
	bpf_loop(BUCKET_SLOTS, merge_slot, &s, 0);
	s.at = bucket_chain(from);
	if (s.at)
		bpf_loop(CHAIN_LONGEST + 1, merge_chain, &s, 0);
	if (number == s.bit)
		mask >>= 1;
	geometry_set(geometry, number, mask);
	bucket_leave(from);
	bucket_leave(to);
	return 1;
}

static __always_inline int reshape_begin(void)
{
	return !*(volatile __u32 *)&blocks.reshaping &&
	       !__sync_val_compare_and_swap(&blocks.reshaping, 0, 1);
}

static __always_inline void reshape_end(void)
{
	barrier();
	*(volatile __u32 *)&blocks.reshaping = 0;
}

/* Entries for which there is a bucket: it has room for 15, and one that is still to be split has
 * up to twice as many as the mean. */
#define BUCKET_ENTRIES 5

/* A table that has become empty keeps this part of its buckets until blocks are given back: if it
 * fills up again, the sweep sees that a second late. */
#define BUCKETS_KEPT 8

/* How many buckets there are to be. */
static __always_inline __u32 buckets_wanted(void)
{
	__u32 families =
		*(volatile __u32 *)&blocks.family[0] + *(volatile __u32 *)&blocks.family[1];
	__u32 lines = families * BLOCK_ENTRIES;
	__u32 free = *(volatile __u32 *)&blocks.free;
	__u32 entries = free < lines ? lines - free : 0;

	return (entries > lines / BUCKETS_KEPT ? entries : lines / BUCKETS_KEPT) / BUCKET_ENTRIES;
}

/* Splits a bucket if there are too few. */
__noinline int split_if_due(void)
{
	if ((__u32)geometry_now() >= buckets_wanted() || !reshape_begin())
		return 0;
	split();
	reshape_end();
	return 0;
}

#define MERGES 64      /* at a time */
#define MERGE_SLACK 64 /* buckets: what is merged is not split again at once */

static long merge_try(__u32 i, __u32 *wanted)
{
	return (__u32)geometry_now() <= *wanted + MERGE_SLACK || !merge();
}

/* Merges some buckets if there are too many. */
static __always_inline void merge_if_due(void)
{
	__u32 wanted = buckets_wanted();

	if ((__u32)geometry_now() <= wanted + MERGE_SLACK || !reshape_begin())
		return;
	bpf_loop(MERGES, merge_try, &wanted, 0);
	reshape_end();
}

#endif
