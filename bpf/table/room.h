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
 * 2. A bit in room_left says that a block may have free lines: a full table has room there. It is
 *    set when the first line is given back to a full block, when a CPU owns or leaves a block, and
 *    by the sweep, so that one that is lost comes again. The CPU that looks there clears it first.
 * 3. A block whose lines are all free and that no CPU owns may become one of the other family, or
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

static __always_inline struct room_bits *room_bits(enum block_kind kind)
{
	return &room_left.family[kind == BLOCK_ENTRIES6];
}

static __always_inline void room_bit_set(__u64 *word, __u64 bit)
{
	if (!(*(volatile __u64 *)word & bit))
		__sync_fetch_and_or(word, bit);
}

/* Clears the bit of a word that was 0. If that is not 0 any more, the bit is set again: 1. */
static __always_inline int room_bit_clear(__u64 *above, __u64 bit, const __u64 *word)
{
	__sync_fetch_and_and(above, ~bit);
	if (!*(volatile __u64 *)word)
		return 0;
	__sync_fetch_and_or(above, bit);
	return 1;
}

static __always_inline __u64 *room_word(enum block_kind kind, __u32 number)
{
	return &room_bits(kind)->word[number / 64 & (ROOM_WORDS - 1)];
}

/* Notes that a block has free lines of a kind. */
static __always_inline void room_note(__u32 number, enum block_kind kind)
{
	struct room_bits *bits = room_bits(kind);
	__u32 at = number / 64 & (ROOM_WORDS - 1);

	room_bit_set(room_word(kind, number), 1ULL << number % 64);
	room_bit_set(&bits->sum[at / 64], 1ULL << at % 64);
	room_bit_set(&bits->top, 1ULL << at / 64);
}

/* That of the other family. */
static __always_inline enum block_kind other_kind(enum block_kind kind)
{
	return kind == BLOCK_ENTRIES6 ? BLOCK_ENTRIES4 : BLOCK_ENTRIES6;
}

/* A block that is this CPU's has free lines of a kind, and nothing else. */
static __always_inline void block_begin(struct block_head *head, __u32 number, enum block_kind kind)
{
	block_become(head, kind);
	*(volatile __u64 *)&head->free = free_lines(kind);
	room_note(number, kind);
}

/* Owns a block if it has so many free entries of a kind: 1, or 0. With `least` 1 it may be another
 * CPU's: a table is full only when it is. */
static __always_inline int block_own(__u32 number, enum block_kind kind, __u32 least)
{
	struct block_head *head = block_head(number);
	enum block_kind is = head ? head->kind : BLOCK_NONE;
	__u64 free = head ? block_free(head) : 0;
	__u32 lines = bits_of(free & ~UNOWNED), owns;

	if ((!(free & UNOWNED) && least > 1) || is == BLOCK_BUCKETS || is == BLOCK_NONE)
		return 0;
	if (is == kind) {
		if (lines < least)
			return 0;
		owns = __sync_val_compare_and_swap(&head->free, free, free & ~UNOWNED) == free;
		if (lines > owns)
			room_note(number, kind);
		return owns;
	}
	if (free != (free_lines(is) | UNOWNED) ||
	    __sync_val_compare_and_swap(&head->free, free, 0) != free)
		return 0;
	block_begin(head, number, kind);
	return 1;
}

/* How many blocks that have been used are looked at before a new one is taken, and how many free
 * entries they are to have. */
#define ROOM_TRIES 4
#define ROOM_ENOUGH 4

struct room_search {
	__u32 cursor; /* in both ranges of blocks; or a number, of noted ones */
	__u32 found;
	__u32 shared; /* another CPU's block that has room */
	__u32 around; /* how often the end of the numbers was reached */
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
	if (!block_own(number, s->kind, ROOM_ENOUGH))
		return 0;
	s->found = number;
	return 1;
}

/* Steps of a search for noted blocks: each looks at one, or goes to the next word that has some. */
#define ROOM_STEPS 128

/* The next noted block from the cursor on: its number. Or the cursor goes on: NO_BLOCK. */
static __always_inline __u32 room_next(struct room_bits *bits, struct room_search *s)
{
	__u32 at = s->cursor / 64 & (ROOM_WORDS - 1), sum = at / 64;
	__u64 left = *(volatile __u64 *)&bits->word[at] >> s->cursor % 64;

	if (left)
		return s->cursor + lowest_bit(left);
	if (!*(volatile __u64 *)&bits->word[at] &&
	    room_bit_clear(&bits->sum[sum], 1ULL << at % 64, &bits->word[at]))
		room_bit_set(&bits->top, 1ULL << sum);
	at++;
	left = at % 64 ? *(volatile __u64 *)&bits->sum[sum] >> at % 64 : 0;
	if (left) {
		s->cursor = (at + lowest_bit(left)) * 64;
		return NO_BLOCK;
	}
	if (!*(volatile __u64 *)&bits->sum[sum])
		room_bit_clear(&bits->top, 1ULL << sum, &bits->sum[sum]);
	sum++;
	left = sum < ROOM_SUMS ? *(volatile __u64 *)&bits->top >> sum : 0;
	s->cursor = left ? (sum + lowest_bit(left)) * 64 * 64 : unknown_zero();
	s->around += !left;
	return NO_BLOCK;
}

static long room_try_noted(__u32 i, struct room_search *s)
{
	struct room_bits *bits = room_bits(s->kind);
	__u32 number = room_next(bits, s);
	__u64 bit = 1ULL << number % 64;
	struct block_head *head;

	if (number == NO_BLOCK)
		return s->around > 1;
	s->cursor = number + 1;
	head = block_head(number);
	if (head && head->kind == s->kind && block_free(head) > 1 &&
	    !(block_free(head) & UNOWNED)) {
		s->shared = number;
		return 0;
	}
	if (!(__sync_fetch_and_and(room_word(s->kind, number), ~bit) & bit) ||
	    !block_own(number, s->kind, 1))
		return 0;
	s->found = number;
	return 1;
}

/* Owns a noted block; if there is none but another CPU's, that one. */
static __always_inline void room_noted(struct hand *hand, struct room_search *s)
{
	s->cursor = hand->noted;
	s->around = unknown_zero();
	bpf_loop(ROOM_STEPS, room_try_noted, s, 0);
	hand->noted = s->cursor;
	if (s->found == NO_BLOCK && s->shared != NO_BLOCK && block_own(s->shared, s->kind, 1))
		s->found = s->shared;
}

/* Finds a block while there may be new ones. */
static __always_inline void room_more(struct hand *hand, struct room_search *s)
{
	struct block_head *head;

	s->cursor = hand->cursor;
	bpf_loop(ROOM_TRIES, room_try, s, 0);
	hand->cursor = s->cursor;
	if (s->found != NO_BLOCK)
		return;
	s->found = block_take(s->kind);
	head = s->found == NO_BLOCK ? 0 : block_head(s->found);
	if (head)
		block_begin(head, s->found, s->kind);
}

/* Gives a CPU another block: its number, or NO_BLOCK. In a full table it is a noted one. */
__noinline __u32 room_own(struct hand *hand, enum block_kind kind)
{
	struct room_search s = { .found = NO_BLOCK, .shared = NO_BLOCK, .kind = kind };

	if (!hand)
		return NO_BLOCK;
	if (blocks_left(kind))
		room_more(hand, &s);
	if (s.found == NO_BLOCK)
		room_noted(hand, &s);
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
 * connection's. That of its replies is seen for with it (conn_enter). */
#define ROOM_AT_HAND 3

/* A CPU owns a block no more. */
static __always_inline void block_leave(struct block_head *head, __u32 number, enum block_kind kind)
{
	__sync_fetch_and_and(room_word(kind, number), ~(1ULL << number % 64));
	if (__sync_fetch_and_or(&head->free, UNOWNED))
		room_note(number, kind);
}

/* Sees that the CPU has a block with so many free entries, or in a full table with any. Not where
 * entries are taken: a chain of calls has no frame left there. A function, as its callers' frames
 * have no room. */
__noinline int room_prepare(enum block_kind kind, __u32 least)
{
	struct hand *hand = hand_of(kind);
	__u32 taken = hand_taken(hand), number;
	struct block_head *head = taken ? block_head(taken - 1) : 0;

	/* It was given back meanwhile, and is another's. */
	if (head && head->kind != kind)
		head = 0;
	if (!hand || (head && bits_of(block_free(head) & ~UNOWNED) >= least))
		return 0;
	number = room_own(hand, kind);
	if (number == NO_BLOCK && head) /* the last lines of a full table */
		return 0;
	if (head && number + 1 != taken)
		block_leave(head, taken - 1, kind);
	*(volatile __u32 *)&hand->taken = number + 1; /* NO_BLOCK: 0 */
	return 0;
}

/* Takes a free entry: its index, or 0. */
static __always_inline __u32 room_take(enum block_kind kind)
{
	__u32 taken = hand_taken(hand_of(kind));
	struct block_head *head = taken ? block_head(taken - 1) : 0;
	__u32 line = head ? room_take_line(head, kind) : 0;

	if (head && !line) /* another CPU may have taken that one */
		line = room_take_line(head, kind);
	return line ? (taken - 1) * INDEX_LINES + line : 0;
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
		room_note(number, head->kind);
	if ((was | 1ULL << index % INDEX_LINES) == (free_lines(head->kind) | UNOWNED))
		room_note(number, other_kind(head->kind));
	return 0;
}

#endif
