/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Entries: found, claimed, entered, taken out. An entry is a cache line, or two of IPv6: the fields
 * of struct conn, and its flow.
 *
 * Invariants:
 * 1. `expires` decides whether an entry lives: a time, and in its 16 low bits the entry's
 *    incarnation, which each opening counts up. A free entry has no time, one that is dead
 *    DEAD_TIME. While the entry is in a bucket, it changes by atomic operations alone. So one CPU
 *    ends a connection, and that which was meant; and a packet prolongs it by a compare-and-swap
 *    with what it has read, by which it can neither revive one that has ended nor move the end
 *    of the next one in the same entry.
 * 2. An entry is written by the CPU that has taken it from its block: incarnation, then flow and
 *    fields; then, under the bucket's claim, the slot and the time. The entry of a connection or
 *    template begins as a dead one. The same CPU then writes its fields (conn_publish).
 * 3. An entry dies first (conn_entry.h), is taken out of its bucket then, and given back last.
 *    Until then its flow has no other entry.
 * 4. A flow has one entry at most, as it is looked for and entered under one claim. That of
 *    replies may be replaced there by another's, and is given back at once (replies.h).
 * 5. A reader loads `expires`, the rest, and `expires` again: if the incarnation is the same, it
 *    has the fields of one connection. That needs the order of loads and of stores of x86.
 */
#ifndef IMBANG_TABLE_ENTRY_H
#define IMBANG_TABLE_ENTRY_H

#include "../flow.h"
#include "buckets.h"
#include "hash.h"
#include "room.h"

#define INCARNATION 0xffffULL /* of struct conn.expires [65 us] */
#define DEAD_TIME (INCARNATION + 1)

static __always_inline __u64 entry_expires(const struct conn *c)
{
	return *(volatile __u64 *)&c->expires;
}

static __always_inline __u32 entry_lines(__u8 family)
{
	return family == AF_INET6 ? 2 : 1;
}

static __always_inline enum block_kind entry_kind(__u8 family)
{
	return family == AF_INET6 ? BLOCK_ENTRIES6 : BLOCK_ENTRIES4;
}

/* An entry's fields, whichever its family. */
static __always_inline struct conn *entry_of(__u32 index)
{
	return line_of(index, 1);
}

static __always_inline struct conn *entry_far(__u32 index)
{
	return line_far(index);
}

/* Its flow, as key. */
static __always_inline __u64 *entry_key(struct conn *c)
{
	return (void *)c + sizeof(struct conn);
}

/* Whether a key is that of an entry; of IPv6, one of two lines. */
static __always_inline int entry_is(struct conn *c, const __u64 *key, __u8 family)
{
	const __u64 *is = entry_key(c);

	if (is[0] != key[0] || is[1] != key[1])
		return 0;
	return family != AF_INET6 || (is[2] == key[2] && is[3] == key[3] && is[4] == key[4]);
}

static __always_inline __u32 entry_next(const struct conn *c)
{
	return *(volatile __u32 *)&c->next;
}

static __always_inline void entry_link(struct conn *c, __u32 next)
{
	*(volatile __u32 *)&c->next = next;
}

/* The flow of an entry of a block, which may be another's meanwhile; 0 if the index is none's. */
static __always_inline int block_flow(void *block, __u32 index, struct flow *flow)
{
	const struct block_head *head = block_line(block, 0, 1);
	enum block_kind kind = head ? head->kind : BLOCK_NONE;
	const struct conn4 *four;
	const struct conn6 *six;

	if (kind == BLOCK_ENTRIES6) {
		six = block_line(block, index % INDEX_LINES, 2);
		if (six)
			*flow = six->flow;
		return !!six;
	}
	four = kind == BLOCK_ENTRIES4 ? block_line(block, index % INDEX_LINES, 1) : 0;
	if (four)
		flow_from4(&four->flow, flow);
	return !!four;
}

__noinline int entry_flow(__u32 index, struct flow *flow)
{
	return flow && block_flow(block_of((index & INDEX_MASK) / INDEX_LINES), index, flow);
}

/*
 * A search in a bucket, in steps: one callback, as a chain of calls may have 8 frames. A reader
 * begins again until the bucket stays as it is meanwhile. With `claims` the bucket is claimed
 * first, and stays claimed.
 *
 * Its state is memory of the CPU, as the stack has no room for it, nor the verifier patience.
 * Before Linux 6.3 a packet may interrupt a program that runs for a process: so there are two of
 * them. Processes run such programs one after the other, under the director's lock.
 */
/* Some 10 ms: who has claimed the bucket may be a CPU that does not run. */
#define SEARCH_STEPS (1 << 22)

/* Whether an index leads to the flow's entry, dead or alive. */
static __always_inline int search_is(const struct search *s, __u32 index)
{
	void *block = block_of((index & INDEX_MASK) / INDEX_LINES);
	struct conn *c = block_line(block, index % INDEX_LINES, 1);

	if (!c || c->hash != s->hash || entry_expires(c) < DEAD_TIME)
		return 0;
	if (!s->six)
		return entry_is(c, s->key.word, AF_INET);
	c = block_line(block, index % INDEX_LINES, 2);
	return c && entry_is(c, s->key.word, AF_INET6);
}

/* Begins with a bucket: 1, or 0 if it could not be claimed, or is not the flow's any more. */
static __always_inline int search_begin(struct search *s, union line *line)
{
	if (s->claims) {
		if (!bucket_claim_once(line))
			return 0;
		if (bucket_of(s->hash, geometry_now()) != s->bucket) {
			bucket_leave(line);
			return 0;
		}
		s->claimed = 1;
	}
	s->control = bucket_control(line);
	barrier();
	s->slots = bucket_tagged(line, tag_of(s->hash, s->control));
	s->at = bucket_chain(line);
	s->before = 0;
	s->chained = 0;
	s->step = SEARCH_SLOTS;
	return 1;
}

/* Nothing was found: whether that is so. */
static __always_inline long search_end(struct search *s, const union line *line)
{
	barrier();
	if (s->claims || (!(s->control & BUCKET_CLAIMED) && s->control == bucket_control(line) &&
			  s->geometry == geometry_now()))
		return 1;
	s->step = SEARCH_BEGIN;
	return 0;
}

/* As a rule, the first step is the last one. */
static long search_step(__u32 i, struct search_at *at)
{
	struct search *s = at->search;
	union line *line;
	struct conn *c;
	__u32 index;

	if (s->step == SEARCH_BEGIN) {
		s->geometry = geometry_now();
		s->bucket = bucket_of(s->hash, s->geometry);
	}
	line = bucket_line(s->bucket);
	if (!line)
		return 1;
	if (s->step == SEARCH_BEGIN && !search_begin(s, line))
		return 0;
	if (s->slots) {
		index = bucket_word(line, slot_first(s->slots));
		s->slots &= s->slots - 1;
	} else {
		s->step = SEARCH_CHAIN;
		index = s->at;
		if (!index || s->chained++ > CHAIN_LONGEST)
			return search_end(s, line);
		c = line_of(index, 1);
		s->at = c ? entry_next(c) : 0;
	}
	if (search_is(s, index)) {
		s->found = index & INDEX_MASK;
		return 1;
	}
	if (s->step == SEARCH_CHAIN)
		s->before = index;
	return 0;
}

/* Begins a search; search_close ends it. */
static __always_inline struct search *search_open(void)
{
	struct scratch *room = get_scratch(SCRATCH_PACKET);
	struct search *s;

	if (!room)
		return 0;
	s = &room->searches[room->searching++ & 1];
	s->step = SEARCH_BEGIN;
	s->found = 0;
	s->claims = 0;
	s->claimed = 0;
	return s;
}

static __always_inline void search_close(void)
{
	struct scratch *room = get_scratch(SCRATCH_PACKET);

	if (room)
		room->searching--;
}

/* Sets what is searched for: an entry of a flow, if that had this `template`. */
static __always_inline void search_as(struct search *s, const struct flow *flow, __u8 template)
{
	s->six = flow->family == AF_INET6;
	if (s->six) {
		s->key.six = *flow;
		s->key.six.template = template;
		s->hash = hash6(&s->key.six);
	} else {
		flow_to4(flow, &s->key.four);
		s->key.four.template = template;
		s->hash = hash4(&s->key.four);
	}
}

static __always_inline void search_for(struct search *s, const struct flow *flow)
{
	search_as(s, flow, flow->template);
}

static __always_inline __u32 search(struct search *s)
{
	struct search_at at = { .search = s };

	bpf_loop(SEARCH_STEPS, search_step, &at, 0);
	return s->found;
}

/* The entry of a flow, dead or alive: its index, or 0; and the flow's hash, as the entry has it. */
static __always_inline __u32 entry_search(const struct flow *flow, __u32 *hash)
{
	struct search *s = search_open();
	__u32 found;

	if (!s)
		return 0;
	search_for(s, flow);
	found = search(s);
	*hash = s->hash;
	search_close();
	return found;
}

/* Likewise, of a key. */
static __always_inline __u32 key_search(const union conn_key *key, __u64 hash, __u8 family)
{
	struct search *s = search_open();
	__u32 found;

	if (!s)
		return 0;
	s->six = family == AF_INET6;
	if (family == AF_INET6)
		s->key.six = key->six;
	else
		s->key.four = key->four;
	s->hash = hash;
	found = search(s);
	search_close();
	return found;
}

__noinline __u32 key_search4(const struct flow4 *flow, __u64 hash)
{
	return flow ? key_search((const void *)flow, hash, AF_INET) : 0;
}

__noinline __u32 key_search6(const struct flow *flow, __u64 hash)
{
	return flow ? key_search((const void *)flow, hash, AF_INET6) : 0;
}

/* Whether a bucket in which no slot has a flow's tag surely has no entry of it. */
static __always_inline int bucket_lacks(const union line *line, __u32 control, __u64 geometry)
{
	barrier();
	return !(control & BUCKET_CLAIMED) && !bucket_chain(line) &&
	       control == bucket_control(line) && geometry == geometry_now();
}

/* Whether a hash surely has no entry: less work than a search. */
static __always_inline int hash_lacks(__u32 hash)
{
	__u64 geometry = geometry_now();
	union line *line = bucket_line(bucket_of(hash, geometry));
	__u32 control = line ? bucket_control(line) : BUCKET_CLAIMED;

	barrier();
	return line && !bucket_tagged(line, tag_of(hash, control)) &&
	       bucket_lacks(line, control, geometry);
}

/* The entry that a flow may have, which is to be read and proved; NULL if there surely is none.
 * For the fast path: as a rule it is in the first slot that has the tag. */
static __always_inline struct conn *entry_find_in(const union conn_key *key, __u8 family)
{
	__u64 hash = key_hash(key, family), geometry = geometry_now(), slots;
	union line *line = bucket_line(bucket_of(hash, geometry));
	__u32 control, index;
	struct conn *c;

	if (!line)
		return 0;
	control = bucket_control(line);
	barrier();
	slots = bucket_tagged(line, tag_of(hash, control));
	if (slots) {
		c = line_of(bucket_word(line, slot_first(slots)), entry_lines(family));
		if (c && entry_is(c, key->word, family) && entry_expires(c) >= DEAD_TIME)
			return c;
	} else if (bucket_lacks(line, control, geometry)) {
		return 0;
	}
	if (family == AF_INET6)
		index = key_search6(&key->six, hash);
	else
		index = key_search4(&key->four, hash);
	return index ? line_of(index, entry_lines(family)) : 0;
}

/* In a frame of its own: those of its callers have no room. */
static __noinline struct conn *entry_find6(const union conn_key *key)
{
	return entry_find_in(key, AF_INET6);
}

static __always_inline struct conn *entry_find(const union conn_key *key, __u8 family)
{
	return family == AF_INET6 ? entry_find6(key) : entry_find_in(key, AF_INET);
}

/* Ends a claim. */
static __always_inline void bucket_release(__u32 bucket)
{
	union line *line = bucket_line(bucket);

	if (line)
		bucket_leave(line);
}

/* Claims the bucket of a flow, and finds its entry there, dead or alive: its index. Without an
 * entry there is no claim, and the result is 0. */
static __always_inline __u32 search_claim(struct search *s)
{
	s->claims = 1;
	if (!search(s) && s->claimed)
		bucket_release(s->bucket);
	return s->found;
}

/* Counts the incarnation of a dead entry up. */
static __always_inline void entry_renew(struct conn *c)
{
	*(volatile __u64 *)&c->expires = (entry_expires(c) + 1) & INCARNATION;
	barrier();
}

/* A time with an entry's incarnation. */
static __always_inline __u64 expires_as(__u64 time, __u64 expires)
{
	return (time & ~INCARNATION) | (expires & INCARNATION);
}

/* Under the claim: gives an entry the time of its end, or DEAD_TIME. */
static __always_inline void entry_set_end(struct conn *c, __u64 time)
{
	__sync_lock_test_and_set(&c->expires, expires_as(time, entry_expires(c)));
}

/* Searches the bucket of the flow that is searched for, claimed; NULL: it could not be. */
static __always_inline union line *search_bucket(struct search *s)
{
	s->claims = 1;
	search(s);
	return s->claimed ? bucket_line(s->bucket) : 0;
}

/* Under the claim: enters an entry in the bucket's chain, as its first. */
static __always_inline void chain_enter(union line *line, struct conn *c, __u32 index)
{
	entry_link(c, bucket_chain(line));
	barrier();
	bucket_chain_set(line, index);
}

/* Under the claim: enters an entry of that flow, which has none there, and that is written but for
 * its time: 0, or -ENOMEM if there are too many of this bucket. */
static __always_inline int bucket_enter(struct search *s, union line *line, struct conn *c,
					__u32 index, __u64 expires)
{
	__u64 empty = bucket_empty_slots(line);

	if (empty) {
		bucket_set(line, slot_first(empty), tag_of(s->hash, bucket_control(line)) | index);
	} else if (s->chained > CHAIN_LONGEST) {
		return -ENOMEM;
	} else {
		chain_enter(line, c, index);
	}
	barrier();
	*(volatile __u64 *)&c->expires = expires_as(expires, entry_expires(c));
	return 0;
}

/* Likewise, claims the bucket for that: also -EEXIST, or -EBUSY. */
static __always_inline int entry_enter(struct search *s, struct conn *c, __u32 index, __u64 expires)
{
	union line *line = search_bucket(s);
	int rc;

	if (!line)
		return -EBUSY;
	rc = s->found ? -EEXIST : bucket_enter(s, line, c, index, expires);
	bucket_leave(line);
	return rc;
}

struct unlink {
	__u32 index;
	__u32 at;     /* the entry that is looked at */
	__u32 before; /* the one before it; 0: none */
	__u32 next;
};

static long unlink_step(__u32 i, struct unlink *u)
{
	struct conn *c = u->at ? line_of(u->at, 1) : 0;

	if (!c)
		return 1;
	if (u->at == u->index) {
		u->next = entry_next(c);
		return 1;
	}
	u->before = u->at;
	u->at = entry_next(c);
	return 0;
}

/* Under the claim: takes an entry from the bucket's chain, behind another one (0: none). Its own
 * link stays, as readers may follow it. */
static __always_inline void chain_cut(union line *line, __u32 before, __u32 next)
{
	struct conn *b = before ? line_of(before, 1) : 0;

	if (b)
		entry_link(b, next);
	else
		bucket_chain_set(line, next);
}

static __always_inline void chain_unlink(union line *line, __u32 index)
{
	struct unlink u = { .index = index, .at = bucket_chain(line) };

	bpf_loop(CHAIN_LONGEST + 1, unlink_step, &u, 0);
	if (u.at == index)
		chain_cut(line, u.before, u.next);
}

/* Under the claim: lets the first of the chain have a slot, or nothing. */
static __always_inline void slot_refill(union line *line, __u32 at)
{
	__u32 first = bucket_chain(line);
	struct conn *c = first ? line_of(first, 1) : 0;

	bucket_set(line, at, c ? tag_of(c->hash, bucket_control(line)) | first : 0);
	barrier();
	if (c)
		bucket_chain_set(line, entry_next(c));
}

/* Under the claim: takes an entry out of its bucket. Its line is to be given back. */
static __always_inline void bucket_drop(union line *line, struct conn *c, __u32 index)
{
	__u64 slots = bucket_indexed(line, index);

	if (slots)
		slot_refill(line, slot_first(slots));
	else
		chain_unlink(line, index);
	*(volatile __u64 *)&c->expires = entry_expires(c) & INCARNATION;
}

/* Likewise, one that a search has found behind another in the chain, or that has no other before
 * it. */
static __always_inline void bucket_drop_behind(union line *line, struct conn *c, __u32 index,
					       __u32 before)
{
	__u64 slots = bucket_indexed(line, index);

	if (slots)
		slot_refill(line, slot_first(slots));
	else
		chain_cut(line, before, entry_next(c));
	*(volatile __u64 *)&c->expires = entry_expires(c) & INCARNATION;
}

/* Claims the bucket of an entry; NULL: it could not be. The entry may have become another's. */
static __always_inline union line *entry_claim(const struct conn *c)
{
	struct claim_try claim = { .hash = *(volatile __u32 *)&c->hash };

	bpf_loop(SEARCH_STEPS, bucket_claim_try, &claim, 0);
	return claim.claimed ? bucket_line(claim.bucket) : 0;
}

/* Takes an entry of this incarnation out of its bucket and gives it back, if it is still there: 0,
 * or an error if its bucket could not be claimed. One of a connection or template is dead. */
__noinline int entry_take_out(__u32 index, __u64 incarnation)
{
	struct conn *c = line_of(index, 1);
	union line *line = c ? entry_claim(c) : 0;
	int is;

	if (!c || !line)
		return -EBUSY;
	is = entry_expires(c) >= DEAD_TIME && !((entry_expires(c) ^ incarnation) & INCARNATION);
	if (is)
		bucket_drop(line, c, index);
	bucket_leave(line);
	if (is)
		room_give(index);
	return 0;
}

#endif
