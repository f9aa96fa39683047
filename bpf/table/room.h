/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Free entries. A CPU takes entries from the block of the family that it owns (its hand), so that
 * CPUs that open connections at once write no line in common; any CPU gives one back.
 *
 * Invariants:
 * 1. The bit of a free line is cleared by the CPU that takes it, whose atomic operation found it
 *    set, and set by the CPU that has ended and unlinked the entry. Ownership of a block decides
 *    which CPU looks there, and nothing else: a program that runs for a process may be
 *    interrupted by a packet's, so that two have one hand.
 * 2. A block whose lines are all free and that no CPU owns may become one of the other family, or
 *    be given back: by a compare-and-swap of its word with 0.
 */
#ifndef IMBANG_TABLE_ROOM_H
#define IMBANG_TABLE_ROOM_H

#include "../scratch.h"
#include "blocks.h"

#define UNOWNED 1ULL
/* An entry of IPv6 takes two lines. */
#define FREE_LINES4 (((1ULL << BLOCK_ENTRIES) - 1) << 1)
#define FREE_LINES6 (0x5555555555555555ULL & ((1ULL << BLOCK_LINES) - 1) & ~1ULL)

static __always_inline __u64 free_lines(enum block_kind kind)
{
	return kind == BLOCK_ENTRIES6 ? FREE_LINES6 : FREE_LINES4;
}

static __always_inline __u64 block_free(const struct block_head *head)
{
	return *(volatile __u64 *)&head->free;
}

/* Owns a block if it has so many free entries of a kind: 1, or 0. With `least` 1 it may be another
 * CPU's: a table is full only when it is. */
static __always_inline int block_own(__u32 number, enum block_kind kind, __u32 least)
{
	struct block_head *head = block_head(number);
	enum block_kind is = head ? head->kind : BLOCK_NONE;
	__u64 free = head ? block_free(head) : 0;

	if ((!(free & UNOWNED) && least > 1) || is == BLOCK_BUCKETS || is == BLOCK_NONE)
		return 0;
	if (is == kind)
		return bits_of(free & ~UNOWNED) >= least &&
		       __sync_val_compare_and_swap(&head->free, free, free & ~UNOWNED) == free;
	if (free != (free_lines(is) | UNOWNED) ||
	    __sync_val_compare_and_swap(&head->free, free, 0) != free)
		return 0;
	block_become(head, kind);
	*(volatile __u64 *)&head->free = free_lines(kind);
	return 1;
}

struct room_search {
	__u32 cursor; /* in both ranges of blocks */
	__u32 least;
	__u32 found;
	enum block_kind kind;
};

static long room_try(__u32 i, struct room_search *s)
{
	__u32 number = s->cursor;

	/* Not a constant, of which the verifier would follow each visit. */
	if (number >= blocks_used())
		number = unknown_zero();
	s->cursor = number + 1;
	number = block_at(number);
	if (!block_own(number, s->kind, s->least))
		return 0;
	s->found = number;
	return 1;
}

/* Blocks that were full until an entry ended: in a full table the only ones with room. */
static long room_try_hint(__u32 i, struct room_search *s)
{
	__u32 *hint = &blocks.hint[i & (BLOCK_HINTS - 1)], number = *(volatile __u32 *)hint;

	if (!number || !block_own(number - 1, s->kind, 1))
		return 0;
	*(volatile __u32 *)hint = 0;
	s->found = number - 1;
	return 1;
}

/* How many blocks are looked at that have been used before a new one is taken, and if there is no
 * new one. */
#define ROOM_TRIES 4
#define ROOM_ENOUGH 4
#define ROOM_TRIES_FULL 256

/* Gives a CPU another block: its number, or NO_BLOCK. */
__noinline __u32 room_own(struct hand *hand, enum block_kind kind)
{
	struct room_search s = { .least = ROOM_ENOUGH, .found = NO_BLOCK, .kind = kind };
	struct block_head *head;

	if (!hand)
		return NO_BLOCK;
	s.cursor = hand->cursor;
	bpf_loop(ROOM_TRIES, room_try, &s, 0);
	if (s.found == NO_BLOCK) {
		s.found = block_take(kind);
		head = s.found == NO_BLOCK ? 0 : block_head(s.found);
		if (head) {
			block_become(head, kind);
			*(volatile __u64 *)&head->free = free_lines(kind);
		}
	}
	s.least = 1;
	if (s.found == NO_BLOCK)
		bpf_loop(BLOCK_HINTS, room_try_hint, &s, 0);
	if (s.found == NO_BLOCK)
		bpf_loop(ROOM_TRIES_FULL, room_try, &s, 0);
	hand->cursor = s.cursor;
	return s.found;
}

/* A free line of a block, taken: its number, or 0. The block may have become another kind's
 * meanwhile. */
static __always_inline __u32 room_take_line(struct block_head *head, enum block_kind kind)
{
	__u64 free = block_free(head) & ~UNOWNED, bit = free & -free;

	if (!bit || !(__sync_fetch_and_and(&head->free, ~bit) & bit))
		return 0;
	if (*(volatile enum block_kind *)&head->kind == kind)
		return lowest_bit(bit);
	__sync_fetch_and_or(&head->free, bit);
	return 0;
}

static __always_inline struct hand *hand_of(enum block_kind kind)
{
	struct scratch *room = get_scratch(SCRATCH_PACKET);

	if (!room)
		return 0;
	return kind == BLOCK_ENTRIES6 ? &room->hand6 : &room->hand4;
}

/* The number of its block, and 1 more; 0: it has none. Where a program runs for a process, a packet
 * may change it. */
static __always_inline __u32 hand_taken(const struct hand *hand)
{
	return hand ? *(volatile __u32 *)&hand->taken : 0;
}

/* Entries that one packet may need: of a template that is set aside, of the next one, and a
 * connection's. */
#define ROOM_AT_HAND 3

/* Sees that the CPU has a block with room for one packet. Not where entries are taken: a chain of
 * calls has no frame left there. A function, as its callers' frames have no room. */
__noinline int room_prepare(enum block_kind kind)
{
	struct hand *hand = hand_of(kind);
	__u32 taken = hand_taken(hand), number;
	struct block_head *head = taken ? block_head(taken - 1) : 0;

	/* It was given back meanwhile, and is another's. */
	if (head && head->kind != kind)
		head = 0;
	if (!hand || (head && bits_of(block_free(head) & ~UNOWNED) >= ROOM_AT_HAND))
		return 0;
	number = room_own(hand, kind);
	if (number == NO_BLOCK && head) /* the last lines of a full table */
		return 0;
	if (head && number + 1 != taken)
		__sync_fetch_and_or(&head->free, UNOWNED);
	*(volatile __u32 *)&hand->taken = number + 1; /* NO_BLOCK: 0 */
	return 0;
}

/* Takes a free entry: its index, or 0. */
static __always_inline __u32 room_take(enum block_kind kind)
{
	__u32 taken = hand_taken(hand_of(kind));
	struct block_head *head = taken ? block_head(taken - 1) : 0;
	__u32 line = head ? room_take_line(head, kind) : 0;

	return line ? (taken - 1) * INDEX_LINES + line : 0;
}

/* Says of a block that it has room in a full table. */
static __always_inline void room_hint(__u32 number)
{
	*(volatile __u32 *)&blocks.hint[number % BLOCK_HINTS] = number + 1;
}

/* Gives back one that is in no bucket. */
__noinline int room_give(__u32 index)
{
	__u32 number = (index & INDEX_MASK) / INDEX_LINES;
	struct block_head *head = block_head(number);
	__u64 was;

	if (!head)
		return 0;
	was = __sync_fetch_and_or(&head->free, 1ULL << index % INDEX_LINES);
	if (!(was & ~UNOWNED))
		room_hint(number);
	return 0;
}

#endif
