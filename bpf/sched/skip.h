/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What rr and wrr look for: the next server down the list that has so much
 * weight and is not overloaded. The service's tree says which parts of the list
 * have no such server; without one, each server is looked at.
 */
#ifndef IMBANG_SCHED_SKIP_H
#define IMBANG_SCHED_SKIP_H

#include "contract.h"
#include "tree.h"

/* Servers looked at, at most. */
#define SKIP_STEPS (1 << 20)

struct skip {
	struct pick *pick;
	__u32 leaves; /* of the tree; 0: there is none, and each position is a leaf */
	__u32 tag;
	__u32 node; /* we are at */
	__s32 bar;  /* the weight that is wanted */
	__u32 id;   /* who was found */
	__u32 lost; /* the tree was built anew meanwhile: begin again, without it */
};

/* All of it but the pick. */
struct skip_words {
	__u32 word[6];
};
_Static_assert(sizeof(struct skip) == sizeof(struct pick *) + sizeof(struct skip_words),
	       "skip_forget has all words");

/* Makes the verifier forget what it knows of a search: it would walk what follows once for
 * each combination of that. Global, so that it believes any word to be written. */
__noinline int skip_forget(struct skip_words *words)
{
	asm volatile("" : : : "memory");
	return !words;
}

static __always_inline void skip_begin(struct skip *at, struct pick *p)
{
	struct tree t;

	at->pick = p;
	at->leaves = 0;
	at->tag = 0;
	at->lost = 0;
	if (!tree_for(p, SCHED_FO, &t))
		return;
	at->leaves = t.leaves;
	at->tag = t.tag;
}

/* The server at a leaf, or the one of most weight below a node. */
static __always_inline __u32 skip_server(struct skip *at, __u32 node)
{
	__u64 *value;

	if (node >= at->leaves)
		return candidate(at->pick, server_id_at(at->pick->first, node - at->leaves));
	value = tree_node(at->pick->first, node);
	if (value && *(volatile __u64 *)value >> 32 == at->tag)
		return *(volatile __u64 *)value;
	at->lost = 1;
	return NO_SERVER;
}

/* Whether a server has so much weight and is not overloaded. Global, so that the verifier
 * walks it once. */
__noinline int skip_takes(__u32 id, __s32 bar)
{
	struct server *s = server_of(id);
	struct load *l = load_of(id);

	return s && l && !overloaded(l) && s->weight >= bar;
}

static long skip_visit(__u32 i, struct skip *at)
{
	__u32 node = at->node;
	__u32 id = skip_server(at, node);

	if (at->lost)
		return 1;
	if (skip_takes(id, at->bar)) {
		if (node >= at->leaves) {
			at->id = id;
			return 1;
		}
		at->node = 2 * node + 1; /* down, to the right */
		return 0;
	}
	if (at->leaves) {
		/* Up, for as long as no usable server is to the left. */
		node /= node & -node;
		at->node = node - 1;
		return node == 1;
	}
	at->node = node - 1;
	return !node;
}

/* Looks before a position. */
static __always_inline void skip_find(struct skip *at, __u32 position)
{
	at->id = NO_SERVER;
	at->node = at->leaves + position - 1;
	skip_forget((struct skip_words *)&at->leaves);
	if (position)
		bpf_loop(SKIP_STEPS, skip_visit, at, 0);
	skip_forget((struct skip_words *)&at->leaves);
	if (at->lost)
		at->leaves = 0;
}

/* Of what was found. */
static __always_inline __u32 skip_position(const struct skip *at)
{
	return at->node - at->leaves;
}

#endif
