/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Memory of the connection table: blocks of 62 cache lines, by number. A block holds entries of
 * one family (room.h) or buckets (buckets.h); its first line is its head.
 *
 * Blocks from 0 on lie in pages, arrays of 8 blocks and 32 KB, which the kernel takes from its
 * direct map. Programs cannot create maps, so a process adds pages ahead of need. If none is
 * left, a program takes a block from SPARE_FIRST on, which is an element of a hash without
 * preallocation: slower by the hash's look-ups, but it needs no process.
 *
 * Invariants:
 * 1. Each of both ranges is taken from its lower end on (`taken`, `spare`), by
 *    compare-and-swap, and given back at its upper end, while `reshaping` is held. Memory of
 *    what was given back stays until a process has waited for packets under way.
 * 2. A block that is taken has a kind, or it is in the hands of the CPU that takes it, or gives
 *    it back: then its word of free lines is 0, which no other CPU can change (room.h).
 * 3. Memory of a block that was given back may be another's while a reader has a pointer to it:
 *    what a reader finds is proved by flow and incarnation (entry.h).
 */
#ifndef IMBANG_TABLE_BLOCKS_H
#define IMBANG_TABLE_BLOCKS_H

#include "../maps.h"
#include "bits.h"

union line {
	__u32 word[LINE_BYTES / 4];
	__u64 whole[LINE_BYTES / 8];
};

/* A line, if `lines` from it on are in the block. */
static __always_inline void *block_line(void *block, __u32 line, __u32 lines)
{
	asm volatile("" : "+r"(line));
	if (!block || line > BLOCK_LINES - lines)
		return 0;
	/* No arithmetic before the comparison with 0. */
	asm volatile("" : "+r"(block));
	return block + line * LINE_BYTES;
}

/* A block, moved so far that its lines are cache lines. */
static __always_inline void *block_of(__u32 number)
{
	__u32 page = number / PAGE_BLOCKS, at = number % PAGE_BLOCKS;
	void *map, *block;

	if (number >= SPARE_FIRST)
		return bpf_map_lookup_elem(&spare_blocks, &number);
	map = bpf_map_lookup_elem(&block_pages, &page);
	block = map ? bpf_map_lookup_elem(map, &at) : 0;
	return block ? block + (pages.shift & (LINE_BYTES - 8)) : 0;
}

static __always_inline struct block_head *block_head(__u32 number)
{
	return block_line(block_of(number), 0, 1);
}

/* What an index leads to: `lines` lines. */
static __always_inline void *line_of(__u32 index, __u32 lines)
{
	return block_line(block_of((index & INDEX_MASK) / INDEX_LINES), index % INDEX_LINES, lines);
}

/* Where it is not often: a call, and fewer instructions for the verifier. */
static __noinline void *line_far(__u32 index)
{
	return line_of(index, 1);
}

#define BLOCK_TRIES 64 /* as many CPUs may take a block at once */

struct block_taking {
	__u32 found;
	__u32 spare; /* the next block of the hash that is tried */
};

/* How many blocks are in use, or were, in both ranges. */
static __always_inline __u32 blocks_used(void)
{
	return *(volatile __u32 *)&blocks.taken + *(volatile __u32 *)&blocks.spare;
}

/* The number of one of them. */
static __always_inline __u32 block_at(__u32 place)
{
	__u32 taken = *(volatile __u32 *)&blocks.taken;

	return place < taken ? place : SPARE_FIRST + place - taken;
}

/* Counts a block that a family gets, or loses. */
static __always_inline void block_counted(enum block_kind kind, __s32 n)
{
	if (kind == BLOCK_ENTRIES4 || kind == BLOCK_ENTRIES6)
		__sync_fetch_and_add(&blocks.family[kind == BLOCK_ENTRIES6], n);
}

/* Makes a block one of another kind. It is in the hands of this CPU. */
static __always_inline void block_become(struct block_head *head, enum block_kind kind)
{
	block_counted(head->kind, -1);
	block_counted(kind, 1);
	*(volatile enum block_kind *)&head->kind = kind;
	barrier();
}

/* The part of the bound that a family may have in addition, when the other one has reached it. */
#define FAMILY_SHARE 8

static __always_inline int blocks_left(enum block_kind kind)
{
	__u32 used = blocks_used(), bound = *(volatile __u32 *)&pages.bound;
	__u32 share = bound / FAMILY_SHARE;

	return used < bound || (kind != BLOCK_BUCKETS && used < bound + share &&
				*(volatile __u32 *)&blocks.family[kind == BLOCK_ENTRIES6] < share);
}

/* An addition that is taken back would let two CPUs have one number: compare-and-swap. */
static long block_take_page(__u32 i, struct block_taking *t)
{
	__u32 at = *(volatile __u32 *)&blocks.taken;

	if (at >= *(volatile __u32 *)&pages.made)
		return 1;
	if (__sync_val_compare_and_swap(&blocks.taken, at, at + 1) != at)
		return 0;
	t->found = at;
	return 1;
}

/* Takes a block of the hash that was given back, and is still there: 1, or 0 if it is in use. */
static __always_inline int block_revive(__u32 number)
{
	struct block_head *head = block_head(number);

	return head && *(volatile enum block_kind *)&head->kind == BLOCK_RETIRED &&
	       __sync_val_compare_and_swap((__u32 *)&head->kind, BLOCK_RETIRED, BLOCK_NONE) ==
		       BLOCK_RETIRED;
}

/* Whose update adds the block owns it; an earlier one may be another CPU's. */
static long block_take_spare(__u32 i, struct block_taking *t)
{
	__u32 number = SPARE_FIRST + t->spare;
	long rc;

	if (t->spare++ >= MAX_SPARE)
		return 1;
	rc = map_update(spare_blocks, &number, &empty_block, BPF_NOEXIST);
	if (rc == -EEXIST && !block_revive(number))
		return 0;
	if (rc && rc != -EEXIST)
		return 1;
	t->found = number;
	return 1;
}

/* Has others see a block of the hash, and all before it. */
static long block_raise_spare(__u32 i, struct block_taking *t)
{
	__u32 at = *(volatile __u32 *)&blocks.spare, next = t->found - SPARE_FIRST + 1;

	return at >= next || __sync_val_compare_and_swap(&blocks.spare, at, next) == at;
}

/* Takes a block, which is to be of a kind and whose lines are not known yet: its number; NO_BLOCK
 * if there is no memory, or the bound is reached. CPUs that do so at once may exceed it by one
 * each. */
__noinline __u32 block_take(enum block_kind kind)
{
	struct block_taking t = { .found = NO_BLOCK };
	struct block_head *head;

	if (!blocks_left(kind))
		return NO_BLOCK;
	bpf_loop(BLOCK_TRIES, block_take_page, &t, 0);
	if (t.found == NO_BLOCK) {
		t.spare = *(volatile __u32 *)&blocks.spare;
		bpf_loop(BLOCK_TRIES, block_take_spare, &t, 0);
		if (t.found == NO_BLOCK)
			return NO_BLOCK;
		bpf_loop(BLOCK_TRIES, block_raise_spare, &t, 0);
	}
	head = block_head(t.found);
	return head ? t.found : NO_BLOCK;
}

#endif
