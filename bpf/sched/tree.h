/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who costs least of a service's servers, or has most weight, without looking
 * at each: a tournament. The leaves are the servers' positions in order of
 * addition, a node above two others has the winner of both, the root the
 * winner of all. On a tie the right one wins, which was added later and is
 * first in Linux's list; so the root is the server that a walk would find.
 *
 * Node k has the children 2k and 2k + 1, and the root is 1. From `leaves` (a
 * power of two) on they are the service's slots of `order`; the others are the
 * slots of `trees` with the same numbers, two siblings in each element. Each
 * has its owner's tag in its upper half: a tag is never used twice, so a packet
 * of an earlier incarnation finds that no node here is its own.
 *
 * A CPU that changes a server's cost plays its matches again, from the leaf
 * up, until a node stays as it was and another server is its winner. CPUs do so
 * at once, without a lock: each says that it comes and that it goes
 * (`climbers`). A CPU that is alone looks at each node once and takes the winner along
 * with its cost (tree_rise). If no other came until it is through, no reads or
 * writes of another were between its own; a CPU that changed a cost meanwhile has
 * yet to come. If one came, it climbs once more like all that are not alone
 * (tree_climb), now to the root, as it may have written something old anywhere
 * on its way; a CPU that comes meanwhile finds it among the climbers. Of CPUs
 * that climb at the same time, no change is lost:
 *
 * - A node depends on its children and on what their winners cost. A CPU that
 *   changes one of these comes to the node afterwards, with a barrier between.
 *   The writer of a child does, as a writer leaves a node only upwards.
 *   A CPU that changed the cost of a child's winner climbs through that child. If
 *   it turns back below, because the server is no longer the winner there, the CPU
 *   that made another the winner is on its way up.
 * - A CPU that comes finds the node right, or writes it. A CPU that writes it
 *   checks all of this again, with a barrier between, until it is right. So if it
 *   wrote something old over a newer value of another CPU, it sees what the other
 *   saw; a change that it does not see is brought up by a later climber.
 *
 * While no CPU climbs, every node is right. While an edit builds a tree,
 * schedulers walk over the list. The builder is one of the climbers, and reads a
 * load only when the tag is known: a load that changes meanwhile is seen, or its
 * CPU climbs to nodes that are built already; from a node that is not built the
 * CPU may turn back, as the builder has yet to process it.
 */
#ifndef IMBANG_SCHED_TREE_H
#define IMBANG_SCHED_TREE_H

#include "contract.h"
#include "cost.h"
#include "fo.h"
#include "lc.h"
#include "list.h"
#include "nq.h"
#include "ovf.h"
#include "sed.h"
#include "wlc.h"

/* Fewer are walked over as quickly as a tree is kept (BenchmarkTrees). A tree of
 * weights costs nothing until thresholds are met; fo gains by it with any number,
 * and wrr's walks are long where a heavy server is overloaded. */
#define TREE_FEW 12

/* Nodes looked at for one change: twice the height is usual, more if other
 * CPUs come between. */
#define TREE_STEPS 4096

static __always_inline struct cost cost_by(enum scheduler rule, __s32 weight, const struct load *l)
{
	if (weight <= 0 || overloaded(l))
		return too_dear();
	switch (rule) {
#define SCHED_CASE(NUMBER, name, number) \
	case SCHED_##NUMBER:             \
		return name##_cost(weight, l);
		SCHEDULERS_BY_COST(SCHED_CASE)
#undef SCHED_CASE
	default:
		return too_dear();
	}
}

static __always_inline struct cost cost_of(enum scheduler rule, __u32 id)
{
	struct server *s = server_of(id);
	struct load *l = load_of(id);

	return s && l ? cost_by(rule, s->weight, l) : too_dear();
}

/* Likewise, of a tree's server: one look-up for both. */
static __always_inline struct cost tree_cost(enum scheduler rule, __u32 id)
{
	struct load *l = load_of(id);

	return l ? cost_by(rule, l->weight, l) : too_dear();
}

static __always_inline __u64 tree_value(__u32 tag, __u32 id)
{
	return (__u64)tag << 32 | id;
}

/* A node and its sibling. */
static __always_inline struct tree_pair *tree_pair(__u32 first, __u32 node)
{
	__u32 slot = first / 2 + node / 2;

	return tree_pair_at(slot);
}

static __always_inline __u64 *tree_node(__u32 first, __u32 node)
{
	struct tree_pair *pair = tree_pair(first, node);

	return pair ? &pair->node[node & 1] : 0;
}

/* The winner of a node; 0 if the node is not the tree's. */
static __always_inline int tree_winner(const struct tree *t, __u32 node, __u32 *id)
{
	__u64 *at, value;

	if (node >= t->leaves) {
		node -= t->leaves;
		*id = node < t->count ? server_id_at(t->first, node) : NO_SERVER;
		return 1;
	}
	at = tree_node(t->first, node);
	if (!at)
		return 0;
	value = *(volatile __u64 *)at;
	*id = value;
	return value >> 32 == t->tag;
}

/* A service's tree as it is now; 0 if there is none. */
static __always_inline int tree_of(const struct service_state *state, struct tree *t)
{
	const volatile struct tree *now = &state->tree;

	t->tag = now->tag;
	t->first = now->first;
	t->count = now->count;
	t->leaves = now->leaves;
	t->rule = now->rule;
	return t->tag && t->tag == now->tag;
}

/* Likewise, for a pick, if it is made of the same list and by this rule. */
static __always_inline int tree_for(const struct pick *p, enum scheduler rule, struct tree *t)
{
	__u32 service = p->service;
	struct service_state *state;

	if (p->peek || p->without != NO_SERVER)
		return 0;
	state = service_state_of(service);
	return state && tree_of(state, t) && t->first == p->first && t->count == p->count &&
	       t->rule == rule;
}

enum tree_step { TREE_RIGHT, TREE_WRITTEN, TREE_GONE };

/* Makes a node the winner of its children. A CPU that wrote it looks again. */
static __always_inline enum tree_step tree_play(const struct tree *t, __u32 node, __u32 *winner,
						int build)
{
	__u64 *at = tree_node(t->first, node), was, is;
	struct cost left_cost, right_cost;
	__u32 left, right;

	if (!at)
		return TREE_GONE;
	was = *(volatile __u64 *)at;
	if (!build && was >> 32 != t->tag)
		return TREE_GONE;
	if (!tree_winner(t, 2 * node, &left) || !tree_winner(t, 2 * node + 1, &right))
		return TREE_GONE;
	left_cost = tree_cost(t->rule, left);
	right_cost = tree_cost(t->rule, right);
	if (!right_cost.weight)
		right = NO_SERVER;
	*winner = costs_less(&left_cost, &right_cost) ? left : right;
	is = tree_value(t->tag, *winner);
	if (is == was)
		return TREE_RIGHT;
	__sync_val_compare_and_swap(at, was, is);
	return TREE_WRITTEN;
}

struct climb {
	struct tree tree;
	__u32 id; /* whose cost has changed */
	__u32 node;
	__u32 wrote;      /* this node */
	__u32 whole;      /* to the root, whatever is right on the way */
	__u32 winner;     /* of this node, to who is alone */
	struct cost cost; /* the winner's */
};

/* Where a server's leaf is, in the tree as it is now; 0 if there is none. */
static __always_inline int tree_leaf(struct climb *c, const struct service_state *state,
				     const struct load *l)
{
	if (!tree_of(state, &c->tree) || l->position >= c->tree.count)
		return 0;
	c->node = c->tree.leaves + l->position;
	return 1;
}

static long tree_climb(__u32 i, struct climb *c)
{
	__u32 winner = NO_SERVER;

	switch (tree_play(&c->tree, c->node, &winner, 0)) {
	case TREE_WRITTEN:
		c->wrote = 1;
		return 0;
	case TREE_RIGHT:
		break;
	case TREE_GONE:
		return 1;
	}
	if (!c->wrote && !c->whole && winner != c->id)
		return 1;
	c->wrote = 0;
	c->node /= 2;
	return !c->node;
}

/* The winner of a node meets its sibling's, and the cheaper one goes up. */
static __always_inline void tree_meet(struct climb *c, __u32 other)
{
	struct cost cost = tree_cost(c->tree.rule, other);
	__s64 right = c->node & 1;

	c->node /= 2;
	if (c->cost.load * cost.weight < cost.load * c->cost.weight + right)
		return;
	c->winner = cost.weight ? other : NO_SERVER;
	c->cost = cost;
}

/* Makes it the node's, and plays on if that changes anything further up. Slot 0
 * never has the tree's tag: the root has no sibling. */
static long tree_rise(__u32 i, struct climb *c)
{
	struct tree_pair *pair = tree_pair(c->tree.first, c->node);
	__u64 is = tree_value(c->tree.tag, c->winner), was, other;

	if (!pair)
		return 1;
	was = pair->node[c->node & 1];
	if (was != is) {
		if ((was ^ is) >> 32)
			return 1;
		__sync_val_compare_and_swap(&pair->node[c->node & 1], was, is);
	} else if (c->winner != c->id) {
		return 1;
	}
	other = pair->node[~c->node & 1];
	if ((other ^ is) >> 32)
		return 1;
	tree_meet(c, other);
	return 0;
}

/* What one does who is alone: each node is looked at once. */
static __always_inline void tree_hurry(struct climb *c, const struct load *l)
{
	__u32 sibling = (c->node ^ 1) - c->tree.leaves;

	c->winner = c->id;
	c->cost = cost_by(c->tree.rule, l->weight, l);
	if (!c->cost.weight)
		c->winner = NO_SERVER;
	sibling = sibling < c->tree.count ? server_id_at(c->tree.first, sibling) : NO_SERVER;
	tree_meet(c, sibling);
	bpf_loop(32, tree_rise, c, 0);
}

/* Added by who comes to change nodes. */
#define TREE_CLIMBER ((1ULL << 32) + 1)

static __always_inline __u64 tree_enter(struct service_state *state)
{
	return __sync_fetch_and_add(&state->climbers, TREE_CLIMBER) + TREE_CLIMBER;
}

static __always_inline void tree_leave(struct service_state *state)
{
	__u64 before = __sync_fetch_and_sub(&state->climbers, 1);

	/* Used, or the instruction is one that orders nothing (arm64). */
	asm volatile("" : : "r"(before));
}

/* What a server costs has changed. */
static __always_inline void tree_update(struct service_state *state, __u32 id, struct load *l)
{
	__u64 entered = tree_enter(state); /* and the barrier */
	struct climb c;

	c.id = id;
	c.whole = 0;
	if ((__u32)entered == 1) {
		if (tree_leaf(&c, state, l))
			tree_hurry(&c, l);
		if (__sync_val_compare_and_swap(&state->climbers, entered, entered - 1) == entered)
			return;
		c.whole = 1;
	}
	if (tree_leaf(&c, state, l)) {
		c.node /= 2;
		__sync_lock_test_and_set(&c.wrote, 0); /* the barrier */
		bpf_loop(TREE_STEPS, tree_climb, &c, 0);
	}
	tree_leave(state);
}

/* A server's connections have: to be called after each change of its load. */
__noinline int load_changed(__u32 id)
{
	struct server *s = server_of(id);
	struct load *l = load_of(id);
	struct service_state *state;
	__u32 service;

	if (!s || !l || !(s->flags & SERVER_AVAILABLE))
		return 0;
	service = s->service;
	state = service_state_of(service);
	if (!state || !state->tree.tag)
		return 0;
	/* That is nothing to weights, but for a threshold. */
	if (state->tree.rule == SCHED_FO && !s->upper)
		return 0;
	tree_update(state, id, l);
	return 0;
}

static long tree_place(__u32 position, struct climb *c)
{
	__u32 id = server_id_at(c->tree.first, position);
	struct server *s = server_of(id);
	struct load *l = load_of(id);

	if (!s || !l)
		return 0;
	l->position = position;
	l->weight = s->weight;
	return 0;
}

static long tree_build(__u32 i, struct climb *c)
{
	__u32 winner;

	switch (tree_play(&c->tree, c->node, &winner, 1)) {
	case TREE_WRITTEN:
		return 0;
	case TREE_RIGHT:
		return !--c->node;
	case TREE_GONE:
		break;
	}
	return 1;
}

static long tree_double(__u32 i, struct tree *t)
{
	t->leaves *= 2;
	return t->leaves >= t->count;
}

/* The service is gone, or its scheduler: so is its tree. */
static __always_inline void tree_drop(const struct service *svc)
{
	__u32 service = svc->id;
	struct service_state *state = service_state_of(service);

	if (state)
		__sync_lock_test_and_set(&state->tree.tag, 0);
}

/* Builds a service's tree after a change of its list, or takes it away. The
 * slot 0 is no tree's, as roots are 1: it has the latest tag. */
static __noinline void tree_rebuild(const struct service *svc, enum scheduler rule)
{
	__u32 service = svc->id, zero = 0;
	struct service_state *state = service_state_of(service);
	struct tree_pair *tags = tree_pair_at(zero);
	struct climb c = {};

	if (!state || !tags)
		return;
	__sync_lock_test_and_set(&state->tree.tag, 0);
	c.tree.first = svc->first;
	c.tree.count = svc->count;
	store_unknown(&c.tree.rule, rule);
	store_unknown(&c.tree.leaves, 1);
	if (rule == SCHED_NONE || svc->count < (rule == SCHED_FO ? 2 : TREE_FEW))
		return;
	bpf_loop(32, tree_double, &c.tree, 0);
	c.tree.tag = __sync_fetch_and_add(&tags->node[0], 1) + 1;
	c.node = c.tree.leaves - 1;
	tree_enter(state);
	bpf_loop(svc->count, tree_place, &c, 0);
	state->tree.first = c.tree.first;
	state->tree.count = c.tree.count;
	state->tree.leaves = c.tree.leaves;
	state->tree.rule = c.tree.rule;
	__sync_lock_test_and_set(&state->tree.tag, c.tree.tag);
	bpf_loop(1 << 22, tree_build, &c, 0);
	tree_leave(state);
}

/* The server at a position has another weight. */
static __always_inline void tree_weight(const struct service *svc, __u32 position)
{
	__u32 service = svc->id, id = server_id_at(svc->first, position);
	struct service_state *state = service_state_of(service);
	struct server *s = server_of(id);
	struct load *l = load_of(id);

	if (!state || !s || !l)
		return;
	l->weight = s->weight;
	tree_update(state, id, l);
}

static __always_inline void tree_changed(const struct change *c, enum scheduler rule)
{
	if (c->event == CHANGE_UPDATE)
		tree_weight(&c->service, c->position);
	else if (c->event == CHANGE_DONE)
		tree_drop(&c->service);
	else
		tree_rebuild(&c->service, rule);
}

#endif
