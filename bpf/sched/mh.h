/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Maglev hashing: a table of 4093 entries that the servers fill in turns,
 * each by a permutation of its own, so that a change moves few clients
 * (ip_vs_mh.c; Eisenbud et al., "Maglev", NSDI 2016, 3.4). Keyed by the
 * client's address, and with mh-port its port; with mh-fallback (or the setting
 * hash_fallback) a server
 * that cannot take the connection is replaced by hashing on.
 *
 * A quiescent server keeps the turns of its last weight: the table stays.
 */
#ifndef IMBANG_SCHED_MH_H
#define IMBANG_SCHED_MH_H

#include "../address.h"
#include "../siphash.h"
#include "contract.h"
#include "skip.h"
#include "weights.h"

#define mh_tree(count) ((count) < TREE_FEW ? SCHED_NONE : SCHED_FO)

#define SVC_MH_FALLBACK SVC_SCHED_1
#define SVC_MH_PORT SVC_SCHED_2

/* generate_hash_secret: both halves of each key are the same. */
#define MH_KEY_1 2654435761ULL
#define MH_KEY_2 2654446892ULL

#define MH_WEIGHT_BITS 6

/* Entries looked at in one step: fewer steps are quicker, the verifier requires
 * a bound. */
#define MH_TRIES 32

/* Servers looked at, at most, for one that has no ramp. Linux knows no ramps. */
#define MH_UNRAMPED 256

/* hsiphash_1u32 of a 64-bit kernel: SipHash-1-3 of four bytes. */
static __always_inline __u32 mh_siphash(__u32 value, __u64 key)
{
	__u64 v0 = SIPHASH_0 ^ key;
	__u64 v1 = SIPHASH_1 ^ key;
	__u64 v2 = SIPHASH_2 ^ key;
	__u64 v3 = SIPHASH_3 ^ key;
	__u64 last = 4ULL << 56 | value;

	v3 ^= last;
	SIPHASH_ROUND;
	v0 ^= last;
	v2 ^= 0xff;
	SIPHASH_ROUND;
	SIPHASH_ROUND;
	SIPHASH_ROUND;
	return v0 ^ v1 ^ v2 ^ v3;
}

struct mh_search {
	struct pick *pick;
	struct maglev *table;
	__u32 value; /* what is hashed, less the offset */
	__u32 hash;  /* of offset 0 */
	__u32 id;
};

/* The server of a hash, if it can take a connection; 1 in `gap` if there is
 * no server at all. */
static __always_inline __u32 mh_server(struct mh_search *search, __u32 hash, __u32 *gap)
{
	struct server *s;
	struct load *l;
	__u32 id;

	barrier_var(hash); /* the compiler knows what the verifier does not */
	if (hash >= MAGLEV_SIZE)
		return NO_SERVER;
	id = search->table->server[hash];
	*gap = id == NO_SERVER;
	id = candidate(search->pick, id);
	s = server_of(id);
	l = load_of(id);
	return s && l && serves(s, search->pick->service) && usable(s, l) ? id : NO_SERVER;
}

static long mh_visit(__u32 i, struct mh_search *search)
{
	__u32 offset = (i + search->hash) % MAGLEV_SIZE;
	__u32 hash = mh_siphash(search->value + offset, MH_KEY_1) % MAGLEV_SIZE;
	__u32 gap = 0;

	search->id = mh_server(search, hash, &gap);
	return search->id != NO_SERVER || gap;
}

static __always_inline struct maglev *mh_table(const struct pick *p)
{
	__u32 service = p->service;

	return bpf_map_lookup_elem(&maglevs, &service);
}

/* How many hashes to try for another server: Linux tries all, also if there is none that can
 * take the connection, which the service's tree tells at once. A function, for the stack's
 * sake. */
static __noinline __u32 mh_tries(struct pick *p)
{
	struct skip at = {};

	if (!p->fallback && !(p->flags & SVC_MH_FALLBACK))
		return 0;
	if (p->without == WITHOUT_RAMPING)
		return MH_UNRAMPED;
	at.bar = 1; /* in an initializer it would need a map of constants */
	skip_begin(&at, p);
	skip_find(&at, p->count);
	return at.id == NO_SERVER && !at.lost ? 0 : MAGLEV_SIZE;
}

/* Returns 1 if there is no more to try: a server, or a table that has none. One
 * that was replaced meanwhile may be another service's (sched/hashed.h). */
static __always_inline int mh_try(struct mh_search *s)
{
	__u32 gap = 0;

	s->table = mh_table(s->pick);
	if (!s->table) {
		s->id = table_missing(s->pick);
		return 1;
	}
	HOOK(TABLE);
	s->id = mh_server(s, s->hash, &gap);
	if (s->id == NO_SERVER && !gap)
		bpf_loop(mh_tries(s->pick), mh_visit, s, 0);
	return s->id != NO_SERVER || mh_table(s->pick) == s->table;
}

static __noinline __u32 mh_pick(struct pick *p)
{
	struct mh_search search = { .pick = p, .id = NO_SERVER };
	__u32 port = p->flags & SVC_MH_PORT ? bpf_ntohs(p->sport) : 0;

	search.value = port + address_fold(&p->src, p->family);
	search.hash = mh_siphash(search.value, MH_KEY_1) % MAGLEV_SIZE;
	if (mh_try(&search) || mh_try(&search) || mh_try(&search))
		return search.id;
	return NO_SERVER;
}

struct mh_fill {
	__u32 first;
	__u32 count;
	__u32 step;  /* greatest common divisor of the weights */
	__u32 shift; /* so that the turns have MH_WEIGHT_BITS bits */
	__u32 filled;
	__u32 position; /* whose turn it is, in order of addition */
	__u32 turn;
};

/* Works out a server's permutation: where it begins, how far it steps. */
static long mh_permute(__u32 position, struct mh_fill *fill)
{
	struct maglev_turn *t = maglev_turn_of(position);
	__u32 id = server_id_at(fill->first, position);
	struct server *s = server_of(id);
	__u32 value;

	if (!t || !s || !fill->step)
		return 1;
	value = bpf_ntohs(s->port) + address_fold(&s->addr, address_family(&s->addr));
	t->next = mh_siphash(value, MH_KEY_1) % MAGLEV_SIZE;
	t->skip = mh_siphash(value, MH_KEY_2) % (MAGLEV_SIZE - 1) + 1;
	t->turns = s->last_weight / fill->step >> fill->shift;
	if (!t->turns && s->last_weight)
		t->turns = 1;
	return 0;
}

/* One step: a server without turns is passed over, taken entries make the
 * server step on, a free one is filled. */
static long mh_step(__u32 i, struct mh_fill *fill)
{
	struct maglev_turn *t = maglev_turn_of(fill->position);
	__u32 at, skip, try;

	if (!t)
		return 1;
	if (t->turns) {
		at = t->next;
		skip = t->skip;
		for (try = 0; try < MH_TRIES; try++) {
			if (at >= MAGLEV_SIZE)
				return 1;
			if (cache.maglev.server[at] == NO_SERVER)
				break;
			at += skip;
			if (at >= MAGLEV_SIZE)
				at -= MAGLEV_SIZE;
		}
		t->next = at;
		if (at >= MAGLEV_SIZE)
			return 1;
		if (try == MH_TRIES)
			return 0;
		cache.maglev.server[at] = server_id_at(fill->first, fill->position);
		if (++fill->filled == MAGLEV_SIZE)
			return 1;
		if (++fill->turn < t->turns)
			return 0;
		fill->turn = 0;
	}
	fill->position = fill->position ? fill->position - 1 : fill->count - 1;
	return 0;
}

static long mh_clear(__u32 i, void *unused)
{
	if (i >= MAGLEV_SIZE)
		return 1;
	cache.maglev.server[i] = NO_SERVER;
	return 0;
}

/* fls: the position of the highest bit, counted from 1. */
static __always_inline __u32 mh_bits(__u32 v)
{
	__u32 bits = !!v;

	bits += (v >= 1U << 16) << 4;
	v >>= (v >= 1U << 16) << 4;
	bits += (v >= 1U << 8) << 3;
	v >>= (v >= 1U << 8) << 3;
	bits += (v >= 1U << 4) << 2;
	v >>= (v >= 1U << 4) << 2;
	bits += (v >= 1U << 2) << 1;
	v >>= (v >= 1U << 2) << 1;
	return bits + (v >= 2);
}

/* A server that was made quiescent keeps the weight it had. */
static long mh_weigh(__u32 position, struct weights *w)
{
	struct server *s = weights_server(w, position);

	if (s)
		weigh(w, s->last_weight);
	return 0;
}

static __noinline void mh_changed(struct change *c)
{
	struct weights w = { .first = c->service.first };
	struct mh_fill fill = { .first = c->service.first, .count = c->service.count };
	__u32 bits;

	if (c->event == CHANGE_DONE || !c->service.count) {
		c->error = map_delete(maglevs, &c->service.id);
		return;
	}
	bpf_loop(MAGLEV_SIZE, mh_clear, &fill, 0);
	bpf_loop(c->service.count, mh_weigh, &w, 0);
	fill.step = w.step;
	if (w.step) {
		bits = mh_bits(w.max / w.step);
		fill.shift = bits > MH_WEIGHT_BITS ? bits - MH_WEIGHT_BITS : 0;
		fill.position = fill.count - 1;
		bpf_loop(fill.count, mh_permute, &fill, 0);
		/* Each entry takes a logarithm of steps on average. */
		bpf_loop(1 << 23, mh_step, &fill, 0);
	}
	c->error = map_update(maglevs, &c->service.id, &cache.maglev, BPF_ANY);
}

#endif
