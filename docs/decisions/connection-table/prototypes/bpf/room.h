/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Free entries. The head of a block has a bit for each of its lines that is free; bit 0, the
 * head's own, says that no CPU owns the block. A CPU takes entries from the block that it owns,
 * so that CPUs that open at once write no line in common; any CPU gives one back.
 *
 * Invariants:
 * 1. Bits of free lines are cleared by the block's owner alone, and set by the CPU that has
 *    ended and unlinked the entry.
 * 2. A block is owned and left by a compare-and-swap of the same word. A CPU owns one block at
 *    most, and runs one program at a time (softirqs are off while the table is changed).
 * 3. A block whose lines are all free and that no CPU owns may be taken away: by a
 *    compare-and-swap of its word with 0, which no CPU can own (room_retire).
 */
#ifndef PROTOTYPE_ROOM_H
#define PROTOTYPE_ROOM_H

#include "bits.h"
#include "pages.h"

#define UNOWNED 1ULL
#define ALL_FREE (((1ULL << (BLOCK_LINES - 1)) - 1) << 1)

struct hand {
	__u32 block;  /* owned; NO_BLOCK: none */
	__u32 cursor; /* the block after the last one that was looked at */
	__u32 begun;
	__u32 pad;
};

#define NO_BLOCK 0xffffffffU
#define ROOM_BEGINS 64 /* as many CPUs may begin a block at once */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hand);
} hands SEC(".maps");

/* A cache line each, since the first is written once for 62 entries of a growing table. */
__u32 blocks_begun __attribute__((aligned(64))); /* blocks that were ever owned */
__u32 blocks_made __attribute__((aligned(64)));  /* the process: blocks in arrays */
__u32 spare_begun __attribute__((aligned(64)));  /* PAGES_BOTH: likewise, in the hash */
__u32 blocks_bound __attribute__((aligned(64))) = MAX_BLOCKS;
__u64 swept_alive __attribute__((aligned(64))); /* entries, by the last pass of the sweep */

/* The word of a block's free lines. */
static __always_inline __u64 *block_free(__u32 block)
{
	union line *head = entry_line_far(block << LINE_BITS);

	return head ? &head->whole[0] : 0;
}

/* Owns a block if it has so many free entries. */
static __always_inline int block_own(__u32 number, __u32 least)
{
	__u64 *word = block_free(number), free = word ? *(volatile __u64 *)word : 0;

	if (!(free & UNOWNED) || popular(free & ALL_FREE) < least)
		return 0;
	return __sync_val_compare_and_swap(word, free, free & ~UNOWNED) == free;
}

struct room_search {
	__u32 cursor;
	__u32 begun;
	__u32 least;
	__u32 found;
};

static long room_try(__u32 i, struct room_search *s)
{
	__u32 number = s->cursor;

	if (!s->begun)
		return 1;
	/* Not a constant, of which the verifier would follow each visit. */
	if (number >= s->begun)
		number = unknown_zero();
	s->cursor = number + 1;
	if (!block_own(number, s->least))
		return 0;
	s->found = number;
	return 1;
}

static long spare_try(__u32 i, struct room_search *s)
{
	__u32 number = s->cursor;

	if (!s->begun)
		return 1;
	if (number >= s->begun)
		number = unknown_zero();
	s->cursor = number + 1;
	if (!block_own(SPARE_FIRST + number, s->least))
		return 0;
	s->found = SPARE_FIRST + number;
	return 1;
}

/* A search for a block that no CPU has owned yet. */
struct room_begin {
	__u32 spare; /* PAGES_BOTH: in the hash */
	__u32 made;
	__u32 found;
};

static __always_inline __u32 *begun_of(__u32 spare)
{
	return spare ? &spare_begun : &blocks_begun;
}

static long begin_try(__u32 i, struct room_begin *s)
{
	__u32 *begun = begun_of(s->spare), at = *(volatile __u32 *)begun;
	__u32 first = s->spare ? SPARE_FIRST : 0;
	long rc;

	if (PAGES == PAGES_HASH || s->spare) {
		/* Whose update adds the block owns it; an earlier one may be another CPU's. */
		at += i;
		if (at >= s->made)
			return 1;
		rc = entry_block_add(first + at);
		if (rc)
			return rc != -EEXIST;
	} else {
		/* An addition that is taken back would let two CPUs have one number. */
		if (at >= s->made)
			return 1;
		if (__sync_val_compare_and_swap(begun, at, at + 1) != at)
			return 0;
	}
	s->found = first + at;
	return 1;
}

/* Has the sweep and others see a block of the hash. */
static long begin_raise(__u32 i, struct room_begin *s)
{
	__u32 *begun = begun_of(s->spare), at = *(volatile __u32 *)begun;
	__u32 next = s->found - (s->spare ? SPARE_FIRST : 0) + 1;

	return at >= next || __sync_val_compare_and_swap(begun, at, next) == at;
}

/* A CPU that sees a block's number before its head is written finds a word of 0, which it cannot
 * own. If there is no memory, nothing has changed. */
__noinline __u32 block_begin(__u32 spare, __u32 made)
{
	struct room_begin s = { .spare = spare, .made = made, .found = NO_BLOCK };
	__u64 *word;

	bpf_loop(ROOM_BEGINS, begin_try, &s, 0);
	if (s.found == NO_BLOCK)
		return NO_BLOCK;
	word = block_free(s.found);
	if (!word)
		return NO_BLOCK;
	*(volatile __u64 *)word = ALL_FREE;
	if (PAGES == PAGES_HASH || spare)
		bpf_loop(ROOM_BEGINS, begin_raise, &s, 0);
	return s.found;
}

/* How many blocks are looked at that have been used before a new one is begun, and if there is
 * no new one. */
#define ROOM_TRIES 4
#define ROOM_ENOUGH 4
#define ROOM_TRIES_FULL 64

__noinline __u32 room_own(struct hand *hand)
{
	struct room_search s = { .least = ROOM_ENOUGH, .found = NO_BLOCK };
	__u32 made = PAGES == PAGES_HASH ? blocks_bound : blocks_made;

	if (!hand)
		return NO_BLOCK;
	if (!hand->begun) {
		hand->begun = 1;
		hand->cursor = bpf_get_smp_processor_id() * 64;
	}
	s.cursor = hand->cursor;
	s.begun = *(volatile __u32 *)&blocks_begun;
	bpf_loop(ROOM_TRIES, room_try, &s, 0);
	if (s.found == NO_BLOCK)
		s.found = block_begin(0, made);
	if (s.found == NO_BLOCK) {
		s.least = 1;
		s.begun = *(volatile __u32 *)&blocks_begun;
		bpf_loop(ROOM_TRIES_FULL, room_try, &s, 0);
	}
	hand->cursor = s.cursor;
	if (PAGES == PAGES_BOTH && s.found == NO_BLOCK) {
		s.begun = *(volatile __u32 *)&spare_begun;
		bpf_loop(ROOM_TRIES, spare_try, &s, 0);
		if (s.found == NO_BLOCK)
			s.found = block_begin(1, MAX_BLOCKS - SPARE_FIRST);
	}
	return s.found;
}

/* Takes a free entry: its index, or 0. */
static __always_inline __u32 room_take(void)
{
	__u32 zero = 0, line;
	struct hand *hand = bpf_map_lookup_elem(&hands, &zero);
	__u64 *word, free = 0;
	union line *head;

	if (!hand)
		return 0;
	head = hand->begun && hand->block != NO_BLOCK ? entry_line(hand->block << LINE_BITS) : 0;
	word = head ? &head->whole[0] : 0;
	if (word)
		free = *(volatile __u64 *)word & ALL_FREE;
	if (!free) {
		if (word)
			__sync_fetch_and_or(word, UNOWNED);
		hand->block = room_own(hand);
		word = hand->block != NO_BLOCK ? block_free(hand->block) : 0;
		if (word)
			free = *(volatile __u64 *)word & ALL_FREE;
		if (!free)
			return 0;
	}
	line = lowest_bit(free);
	__sync_fetch_and_and(word, ~(1ULL << line));
	return hand->block << LINE_BITS | line;
}

/* Gives back one that is in no bucket. */
static __always_inline void room_give(__u32 index)
{
	__u64 *word = block_free((index & INDEX_MASK) >> LINE_BITS);

	if (word)
		__sync_fetch_and_or(word, 1ULL << (index & 63));
}

/* Whether a block is taken out of use: then its page may be removed. */
static __always_inline int room_retire(__u32 number)
{
	__u64 *word = block_free(number);

	return word &&
	       __sync_val_compare_and_swap(word, ALL_FREE | UNOWNED, 0) == (ALL_FREE | UNOWNED);
}

#endif
