// SPDX-License-Identifier: GPL-2.0-only
/*
 * A table of our own in pages: buckets (buckets.h) lead to entries of one cache line (room.h) in
 * blocks (pages.h). A process adds pages, or the programs add blocks, by the variant.
 *
 * Invariants of entries:
 * 1. `expires` decides whether an entry lives: a time, and in its 16 low bits the entry's
 *    incarnation, which each opening counts up. No time is dead or free. Once published, it
 *    changes by compare-and-swap alone. So one CPU ends a connection, that which was meant; and
 *    a packet that has prolonged it has prevented that.
 * 2. A state changes by compare-and-swap of `word`, which has the incarnation, too: it fails if
 *    the entry was ended and opened for another flow.
 * 3. An entry is opened by the CPU that has taken it from its block: incarnation, then flow and
 *    fields; then, under the bucket's claim, the slot and the time.
 * 4. An entry is ended first, then taken from its bucket under the claim, then given back. Until
 *    then its hash, by which it is found there, stays. A CPU that ends it and gets no claim in
 *    time abandons it: it stays in its bucket, dead, and the sweep takes it from there as if it
 *    were due, without counting its end again.
 * 5. A reader loads `expires`, the rest, `expires` again: if the incarnation is the same, it has
 *    the fields of one connection. That needs the order of loads and of stores of x86.
 * 6. A flow has one entry at most in its bucket, as it is looked for and entered under one claim.
 *    Of several CPUs that open a flow at once exactly one enters it; it schedules. An entry that
 *    has expired is taken over under the claim, by the compare-and-swap of `expires`, and keeps
 *    its slot.
 * 7. A connection moves to another entry (so that a block becomes free) under the claim: the new
 *    entry is written, `expires` of the old one swapped away, then that of the new one written and
 *    the slot. A command that had found the old one, and fails to swap, finds its flow again.
 *    What changes by `word` has to be locked there meanwhile; the prototype changes nothing.
 */
#include "flows.h"
#include "buckets.h"
#include "room.h"

#define INCARNATION 0xffffULL /* of expires [65 us] */
#define ABANDONED 0x10000ULL
#define WORD_SHIFT 48 /* the incarnation in `word` */

struct flow_entry {
	struct flow4 flow;
	__u64 expires; /* [ns], and INCARNATION; below ABANDONED: dead or free */
	__u64 word;    /* incarnation; state, flags, port */
	__u32 server;
	__u32 fwmark;
	__u32 netmask;
	__u32 told;
	__u32 hash; /* the bits that say its bucket */
	__u32 link; /* its tag, and in a chain the next one's index */
	__u64 spare;
};
_Static_assert(sizeof(struct flow_entry) == 64, "an entry is a cache line");

static __always_inline struct flow_entry *entry_of(__u32 index)
{
	return (struct flow_entry *)entry_line(index);
}

static __always_inline struct flow_entry *entry_far(__u32 index)
{
	return (struct flow_entry *)entry_line_far(index);
}

static __always_inline __u32 entry_next(const struct flow_entry *e)
{
	return *(volatile __u32 *)&e->link & INDEX_MASK;
}

static __always_inline void entry_link(struct flow_entry *e, __u32 next)
{
	*(volatile __u32 *)&e->link = (e->link & ~INDEX_MASK) | next;
}

static __always_inline __u64 entry_expires(const struct flow_entry *e)
{
	return *(volatile __u64 *)&e->expires;
}

/* Whether an entry, dead or alive, is in a bucket for a connection. */
static __always_inline int counts(__u64 expires)
{
	return expires >= ABANDONED + INCARNATION + 1;
}

/* Whether an entry is this flow's and lives; `word` is one of its fields. */
static __always_inline int entry_read(const struct flow_entry *e, const struct flow4 *f, __u64 now,
				      __u64 *word)
{
	__u64 before = entry_expires(e);
	int is;

	barrier();
	is = flow_is(&e->flow, f);
	*word = *(volatile __u64 *)&e->word;
	barrier();
	return is && before > now && !((before ^ entry_expires(e)) & INCARNATION);
}

/* A search that the first slot with the tag has not ended. */
struct search {
	struct flow4 flow;
	__u64 now;
	__u32 hash;
	__u32 tag;
	__u32 bucket;
	__u32 at; /* the next entry of the chain */
	__u32 found;
	__u32 any; /* also what has expired: by the bucket's owner alone */
	int over;
	__u64 slots; /* that have the tag */
};

static __always_inline int search_is(struct search *s, __u32 word)
{
	struct flow_entry *e = entry_far(word);
	__u64 seen;

	if (!e || !(s->any ? flow_is(&e->flow, &s->flow) && counts(entry_expires(e))
			   : entry_read(e, &s->flow, s->now, &seen)))
		return 0;
	s->found = word & INDEX_MASK;
	return 1;
}

static long search_slot(__u32 i, struct search *s)
{
	union line *line = s->slots ? bucket_line(s->bucket) : 0;
	__u32 word;

	if (!line)
		return 1;
	word = bucket_word(line, slot_first(s->slots));
	s->slots &= s->slots - 1;
	return (word ^ s->tag) <= INDEX_MASK && search_is(s, word);
}

static long search_chain(__u32 i, struct search *s)
{
	struct flow_entry *e;

	if (!s->at || search_is(s, s->at))
		return 1;
	e = entry_far(s->at);
	s->at = e ? entry_next(e) : 0;
	return 0;
}

/* All slots of a bucket, and its chain. If nothing is found, `at` is 0 at the chain's end. */
static __always_inline int search_bucket(struct search *s)
{
	union line *line;

	if (!s)
		return 0;
	s->found = 0;
	s->at = 0;
	line = bucket_line(s->bucket);
	if (!line)
		return 0;
	s->slots = bucket_tagged(line, s->tag);
	bpf_loop(BUCKET_SLOTS, search_slot, s, 0);
	if (s->found)
		return 1;
	line = bucket_line(s->bucket);
	s->at = line ? bucket_chain(line) : 0;
	if (!s->at)
		return 0;
	/* Who opens may add one: it takes a step less than those who find it. */
	bpf_loop(CHAIN_STEPS - s->any, search_chain, s, 0);
	return s->found != 0;
}

static long search_round(__u32 i, struct search *s)
{
	__u64 g = geometry_now();
	union line *line;
	__u32 control;

	s->bucket = bucket_of(s->hash, g);
	line = bucket_line(s->bucket);
	if (!line)
		return 1;
	control = bucket_control(line);
	barrier();
	if (search_bucket(s))
		return 1;
	barrier();
	line = bucket_line(s->bucket);
	if (line && !(control & BUCKET_CLAIMED) && control == bucket_control(line) &&
	    g == geometry_now()) {
		s->over = 1;
		return 1;
	}
	return 0;
}

/* A reader's rounds, until the bucket stays as it is. */
#define SEARCH_ROUNDS 64

__noinline __u32 search_slowly(const struct flow4 *f, __u64 now, __u32 hash, __u32 tag)
{
	struct search s = { .now = now, .hash = hash, .tag = tag };

	if (!f)
		return 0;
	s.flow = *f;
	bpf_loop(SEARCH_ROUNDS, search_round, &s, 0);
	return s.found;
}

static __always_inline struct flow_entry *entry_find(const struct flow4 *f, __u64 now)
{
	__u64 hash = flow_hash(f), g = geometry_now(), seen;
	__u32 tag = tag_of(hash), control, word;
	union line *line = bucket_line(bucket_of(hash, g));
	struct flow_entry *e;
	__u64 slots;

	if (!line)
		return 0;
	control = bucket_control(line);
	barrier();
	slots = bucket_tagged(line, tag);
	if (slots) {
		e = entry_of(bucket_word(line, slot_first(slots)));
		if (e && entry_read(e, f, now, &seen))
			return e;
	} else {
		barrier();
		if (!(control & BUCKET_CLAIMED) && !bucket_chain(line) &&
		    control == bucket_control(line) && g == geometry_now())
			return 0;
	}
	word = search_slowly(f, now, hash, tag);
	return word ? entry_far(word) : 0;
}

static __always_inline int table_find(const struct flow4 *f, __u64 now)
{
	struct flow_entry *e = entry_find(f, now);

	return e ? truth(e->expires) : 0;
}

/* A split of the bucket whose turn it is. */
struct split {
	__u32 from;
	__u32 to;
	__u32 bit;   /* of the hash: entries that have it move */
	__u32 at;    /* the slot, or the entry of the chain, that is looked at */
	__u32 fill;  /* the next slot of the new bucket */
	__u32 moves; /* slots that move, a bit each */
	__u32 left;  /* of these, what is not copied yet */
	__u32 last;  /* of the chain, one that stays; 0: none yet */
};

/* Which slots move. No branch waits for an entry, so that the CPU reads several at a time. */
static long split_look(__u32 i, struct split *s)
{
	union line *from = bucket_line(s->from);
	__u32 at = s->at++, word;
	struct flow_entry *e;

	if (!from)
		return 1;
	word = bucket_word(from, at);
	e = entry_far(word);
	if (!e)
		return 0;
	s->moves |= (truth(e->hash & s->bit) & truth(word)) << (at & 15);
	return 0;
}

static long split_slot(__u32 i, struct split *s)
{
	union line *from = bucket_line(s->from), *to = bucket_line(s->to);
	__u32 at = lowest_bit(s->left);

	if (!from || !to || !s->left)
		return 1;
	s->left &= s->left - 1;
	bucket_set(to, s->fill++, bucket_word(from, at));
	return 0;
}

/* Moves what moves of a chain. When the geometry is published, none of it may be in the other
 * bucket, as it may end there, and its link be another's. A reader waits for that. */
static long split_chain(__u32 i, struct split *s)
{
	union line *from = bucket_line(s->from), *to = bucket_line(s->to);
	struct flow_entry *e = s->at ? entry_far(s->at) : 0, *last;
	__u32 index = s->at, next;

	if (!e || !from || !to)
		return 1;
	next = entry_next(e);
	s->at = next;
	if (!(e->hash & s->bit)) {
		s->last = index;
		return 0;
	}
	last = s->last ? entry_far(s->last) : 0;
	if (last)
		entry_link(last, next);
	else
		bucket_chain_set(from, next);
	if (s->fill <= BUCKET_SLOTS) {
		bucket_set(to, s->fill++, (e->link & ~INDEX_MASK) | index);
	} else {
		entry_link(e, bucket_chain(to));
		bucket_chain_set(to, index);
	}
	return 0;
}

/* Lets the chain's first have the slot of one that has moved. */
static long split_refill(__u32 i, struct split *s)
{
	union line *from = bucket_line(s->from);
	__u32 first = from ? bucket_chain(from) : 0;
	struct flow_entry *e = first ? entry_far(first) : 0;

	if (!e || !from || !s->moves)
		return 1;
	bucket_set(from, lowest_bit(s->moves), (e->link & ~INDEX_MASK) | first);
	s->moves &= s->moves - 1;
	barrier();
	bucket_chain_set(from, entry_next(e));
	return 0;
}

/* Copies what moves, while the geometry does not name the new bucket. */
static __noinline int split_copy(struct split *s)
{
	union line *from;

	if (!s)
		return 0;
	bpf_loop(BUCKET_SLOTS, split_look, s, 0);
	s->left = s->moves;
	bpf_loop(BUCKET_SLOTS, split_slot, s, 0);
	from = bucket_line(s->from);
	s->at = from ? bucket_chain(from) : 0;
	if (s->at)
		bpf_loop(CHAIN_STEPS, split_chain, s, 0);
	return 0;
}

/* Grows by one bucket. The caller holds `splitting`. */
__noinline int split_one(void)
{
	__u64 g = geometry_now();
	__u32 number = g, mask = g >> 32;
	union line *from, *to;
	struct split s = { .moves = unknown_zero() };

	s.at = 1 + unknown_zero();
	s.fill = s.at;
	s.last = unknown_zero();
	if (number > mask)
		mask = mask << 1 | 1;
	s.bit = (mask + 1) >> 1;
	s.to = number;
	s.from = number - s.bit;
	to = bucket_line(s.to);
	if (!to) {
		if (bucket_block_add(s.to))
			return 0;
		to = bucket_line(s.to);
	}
	from = bucket_line(s.from);
	if (!to || !from || !bucket_claim_once(from))
		return 0;
	split_copy(&s);
	barrier();
	/* A full barrier: what was copied is seen before the geometry. */
	__sync_val_compare_and_swap(&shape.geometry, g, (__u64)mask << 32 | (number + 1));
	barrier();
#pragma unroll
	for (__u32 i = 1; i <= BUCKET_SLOTS; i++)
		if (s.moves & 1U << i)
			*(volatile __u32 *)&from->word[i] = 0;
	if (bucket_chain(from))
		bpf_loop(BUCKET_SLOTS, split_refill, &s, 0);
	bucket_leave(from);
	return 1;
}

/* Entries for which a bucket is made: they have room for 15, and a bucket that is still to be
 * split has up to twice as many as the mean. */
#define BUCKET_ENTRIES 5

/* Splits a bucket if there are too few for the blocks in use. */
static __always_inline void split_if_due(void)
{
	__u32 blocks = *(volatile __u32 *)&blocks_begun + *(volatile __u32 *)&spare_begun;

	if ((__u32)geometry_now() * BUCKET_ENTRIES >= blocks * (BLOCK_LINES - 1))
		return;
	if (__sync_val_compare_and_swap(&splitting, 0, 1))
		return;
	split_one();
	*(volatile __u32 *)&splitting = 0;
}

/* Counts the incarnation of a dead entry up. */
static __always_inline void entry_renew(struct flow_entry *e)
{
	__u64 next = (entry_expires(e) + 1) & INCARNATION;

	*(volatile __u64 *)&e->expires = next;
	barrier();
	*(volatile __u64 *)&e->word = next << WORD_SHIFT;
}

/* Has an entry live that was written: under the claim. */
static __always_inline void entry_publish(struct flow_entry *e, __u64 expires)
{
	barrier();
	*(volatile __u64 *)&e->expires =
		(expires & ~INCARNATION) | (entry_expires(e) & INCARNATION);
}

/* Ends an entry that was seen with this time: 1 if this CPU has done it. */
static __always_inline int entry_kill(struct flow_entry *e, __u64 expires)
{
	return __sync_val_compare_and_swap(&e->expires, expires, expires & INCARNATION) == expires;
}

/* Writes all of an entry but its time: it is in no bucket. */
static __always_inline void entry_begin(struct flow_entry *e, const struct flow4 *f, __u64 hash)
{
	entry_renew(e);
	e->flow = *f;
	e->hash = hash;
	e->link = tag_of(hash);
	e->server = 0;
	e->fwmark = 0;
	e->netmask = 0;
	e->told = 0;
}

/* Under the claim: takes an entry over that has expired; 1 if this CPU has ended it. */
static __always_inline int entry_take_over(__u32 index, __u64 now, __u64 expires)
{
	struct flow_entry *e = entry_far(index);
	__u64 was = e ? entry_expires(e) : 0;

	if (!e || was > now || !counts(was) || !entry_kill(e, was))
		return 0;
	/* Here the earlier connection leaves its server's count. */
	entry_renew(e);
	entry_publish(e, expires);
	return 1;
}

/* The entry has another one's place. */
#define TAKEN_OVER 1

/* Enters an entry that has begun: 0, TAKEN_OVER, or why not. */
__noinline int entry_enter(const struct flow4 *f, __u32 index, __u64 now, __u64 expires)
{
	struct flow_entry *e = entry_far(index);
	struct search s = { .now = now, .any = 1 };
	union line *line;
	__u64 empty;
	int rc = -EEXIST;

	if (!f || !e)
		return -EINVAL;
	s.flow = *f;
	s.hash = e->hash;
	s.tag = e->link;
	line = bucket_claim(s.hash);
	if (!line)
		return -EBUSY;
	if (bucket_chain(line) || bucket_tagged(line, s.tag)) {
		s.bucket = bucket_of(s.hash, geometry_now());
		if (search_bucket(&s)) {
			if (entry_take_over(s.found, now, expires)) {
				rc = TAKEN_OVER;
				goto leave;
			}
			e = entry_far(s.found);
			if (!e || counts(entry_expires(e)))
				goto leave;
			/* It has just ended; that CPU waits for the claim. */
			e = entry_far(index);
			if (!e)
				goto leave;
		}
	}
	rc = 0;
	empty = bucket_tagged(line, 0);
	if (empty) {
		bucket_set(line, slot_first(empty), s.tag | index);
	} else if (s.at) {
		rc = -ENOMEM;
		goto leave;
	} else {
		entry_link(e, bucket_chain(line));
		barrier();
		bucket_chain_set(line, index);
	}
	entry_publish(e, expires);
leave:
	bucket_leave(line);
	return rc;
}

__noinline int table_open(const struct flow4 *f, __u64 now, __u64 timeout)
{
	__u32 index = f ? room_take() : 0;
	struct flow_entry *e = index ? entry_of(index) : 0;
	int rc;

	if (!e)
		return -ENOMEM;
	entry_begin(e, f, flow_hash(f));
	rc = entry_enter(f, index, now, now + timeout);
	if (rc)
		room_give(index);
	split_if_due();
	return rc == TAKEN_OVER ? 0 : rc;
}

struct unlink {
	__u32 index;
	__u32 at;     /* the entry that is looked at */
	__u32 before; /* the one before it; 0: none */
	__u32 next;
};

static long unlink_try(__u32 i, struct unlink *u)
{
	struct flow_entry *e = u->at ? entry_far(u->at) : 0;

	if (!e)
		return 1;
	if (u->at == u->index) {
		u->next = entry_next(e);
		return 1;
	}
	u->before = u->at;
	u->at = entry_next(e);
	return 0;
}

/* Under the claim: takes an entry from the bucket's chain. Its own link stays, as readers may
 * follow it. */
__noinline int chain_unlink(union line *line, __u32 index)
{
	struct unlink u = { .index = index };
	struct flow_entry *before;

	if (!line)
		return 0;
	u.at = bucket_chain(line);
	bpf_loop(CHAIN_STEPS, unlink_try, &u, 0);
	if (u.at != index)
		return 0;
	before = u.before ? entry_far(u.before) : 0;
	if (before)
		entry_link(before, u.next);
	else
		bucket_chain_set(line, u.next);
	return 1;
}

/* Ends the connection of an entry that was seen with this time, and all that belongs to it: 1 if
 * this CPU has done it. */
__noinline int entry_end(__u32 index, __u64 expires)
{
	struct flow_entry *e = entry_far(index);
	union line *line;
	__u32 at, first;
	__u64 slots;

	if (!e || expires < ABANDONED || !entry_kill(e, expires))
		return 0;
	/* Here the connection leaves its server's count, if it counts. */
	line = bucket_claim(e->hash);
	if (!line) {
		*(volatile __u64 *)&e->expires = ABANDONED | (expires & INCARNATION);
		return counts(expires);
	}
	slots = bucket_indexed(line, index);
	at = slot_first(slots);
	first = bucket_chain(line);
	if (!slots) {
		chain_unlink(line, index);
	} else if (first) {
		e = entry_far(first);
		bucket_set(line, at, e ? (e->link & ~INDEX_MASK) | first : 0);
		barrier();
		bucket_chain_set(line, e ? entry_next(e) : 0);
	} else {
		bucket_set(line, at, 0);
	}
	bucket_leave(line);
	room_give(index);
	return counts(expires);
}

/* Gives a connection that was seen with this time another entry: 1 if it has one. */
__noinline int entry_move(__u32 index, __u64 expires)
{
	__u32 fresh = room_take();
	struct flow_entry *from = entry_far(index), *to = fresh ? entry_far(fresh) : 0;
	union line *line;
	__u64 slots;
	int moved = 0;

	if (!to)
		return 0;
	if (!from || !counts(expires))
		goto give;
	entry_renew(to);
	to->flow = from->flow;
	to->hash = from->hash;
	to->link = from->link & ~INDEX_MASK;
	to->word = (to->word & INCARNATION << WORD_SHIFT) |
		   (from->word & ~(INCARNATION << WORD_SHIFT));
	to->server = from->server;
	to->fwmark = from->fwmark;
	to->netmask = from->netmask;
	to->told = from->told;
	line = bucket_claim(to->hash);
	if (!line)
		goto give;
	slots = bucket_indexed(line, index);
	/* What is in a chain waits until it has a slot. */
	if (slots && entry_kill(from, expires)) {
		entry_publish(to, expires);
		bucket_set(line, slot_first(slots), to->link | fresh);
		fresh = index;
		moved = 1;
	}
	bucket_leave(line);
give:
	room_give(fresh);
	return moved;
}

static __always_inline __u32 entry_index(const struct flow4 *f, __u64 *expires)
{
	__u64 hash = f ? flow_hash(f) : 0;
	/* Also what has expired; but not what is dead. */
	__u64 dead = ABANDONED | INCARNATION;
	__u32 index = f ? search_slowly(f, dead, hash, tag_of(hash)) : 0;
	struct flow_entry *e = index ? entry_far(index) : 0;

	if (!e || !expires)
		return 0;
	*expires = e->expires;
	return index;
}

static __always_inline int table_end(const struct flow4 *f)
{
	__u64 expires = 0;
	__u32 index = entry_index(f, &expires);

	return index && entry_end(index, expires);
}

/* The sweep goes through blocks in their order: memory is read ahead. */
struct walk {
	__u64 now;
	__u64 until; /* this callback ends [ns] */
	__u64 seen;
	__u64 alive;
	__u32 block;
	__u32 line;
	__u32 due; /* of eight lines, those that end */
};

static long sweep_end(__u32 i, struct walk *w)
{
	__u32 line = w->line + lowest_bit(w->due);
	struct flow_entry *e;

	if (!w->due)
		return 1;
	w->due &= w->due - 1;
	e = entry_far(w->block << LINE_BITS | line);
	if (e)
		entry_end(w->block << LINE_BITS | line, entry_expires(e));
	return 0;
}

/* Of a callback: a block of entries that all end takes some 15 us more. */
#define SWEEP_LONGEST 150000 /* [ns] */

__u32 sweep_cursor __attribute__((aligned(64)));
__u64 sweep_alive; /* entries of the pass that is under way */

/* 1 if a <= b, of times: by arithmetic, as the verifier would follow each of 256 combinations of
 * eight branches. */
static __always_inline __u64 not_after(__u64 a, __u64 b)
{
	return ((b - a) >> 63) ^ 1;
}

/* Eight lines of a block. */
static long sweep_lines(__u32 i, struct walk *w)
{
	__u64 nothing = unknown_zero(), due = 0, expires, kept;
	void *block = entry_block(w->block);

	if (!block)
		return 1;
#pragma unroll
	for (__u32 n = 0; n < 8; n++) {
		struct flow_entry *e = (struct flow_entry *)block_line(block, w->line + n);

		/* The head of a block has nothing at this place. */
		expires = e ? entry_expires(e) : nothing;
		kept = not_after(ABANDONED, expires);
		due |= (kept & not_after(expires, w->now)) << n;
		w->alive += kept & ~not_after(expires, w->now);
	}
	w->due = due;
	if (due)
		bpf_loop(8, sweep_end, w, 0);
	w->line += 8;
	return 0;
}

static long sweep_block(__u32 i, struct walk *w)
{
	__u32 blocks = *(volatile __u32 *)&blocks_begun, spare = *(volatile __u32 *)&spare_begun;
	__u32 at = w->block++, kept;

	if (at >= blocks + spare || bpf_ktime_get_ns() > w->until) {
		w->block--;
		return 1;
	}
	kept = w->block;
	w->block = at < blocks ? at : SPARE_FIRST + at - blocks;
	w->line = unknown_zero();
	bpf_loop(8, sweep_lines, w, 0);
	w->block = kept;
	w->seen += BLOCK_LINES - 1;
	return 0;
}

static __always_inline __u64 table_sweep(__u32 budget, __u64 now, __u64 *more)
{
	struct walk w = {
		.now = now,
		.block = sweep_cursor,
		.until = bpf_ktime_get_ns() + SWEEP_LONGEST,
	};
	__u32 blocks = *(volatile __u32 *)&blocks_begun + *(volatile __u32 *)&spare_begun;

	bpf_loop(budget / (BLOCK_LINES - 1) + 1, sweep_block, &w, 0);
	sweep_alive += w.alive;
	*more = w.block < blocks;
	if (!*more) {
		swept_alive = sweep_alive;
		sweep_alive = 0;
		w.block = 0;
	}
	sweep_cursor = w.block;
	return w.seen;
}

#include "bench.h"

static long visit_move(__u32 i, struct run *r)
{
	__u64 expires = 0;
	struct flow4 f;
	__u32 index;

	flow_of(r, i, &f);
	index = entry_index(&f, &expires);
	if (index && entry_move(index, expires))
		r->done++;
	else
		r->failed++;
	return 0;
}

BATCH(evacuate, visit_move)

/* The process makes the first buckets known: `count` of them, a power of two. */
SEC("tc") int begin(struct __sk_buff *skb)
{
	struct request *q = request_of_cpu();

	if (!q || shape.geometry)
		return -1;
	if (!bucket_line(0) && bucket_block_add(0))
		return -1;
	shape.geometry = (__u64)(q->count - 1) << 32 | q->count;
	return 0;
}
