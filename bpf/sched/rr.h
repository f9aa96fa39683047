/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Round robin: the next server after the last pick that can take a
 * connection; a weight counts only as being above zero (ip_vs_rr.c).
 *
 * The last pick is a position in order of addition, so that a server added
 * later moves nothing; a deleted server's predecessor in the list takes its
 * place. CPUs that pick at once agree by compare-and-swap: none repeats
 * another's turn. A packet that finds another incarnation in the cursor is one
 * that a change overtook: it takes the first server and moves nothing.
 */
#ifndef IMBANG_SCHED_RR_H
#define IMBANG_SCHED_RR_H

#include "contract.h"
#include "skip.h"

#define rr_tree(count) ((count) < TREE_FEW ? SCHED_NONE : SCHED_FO)

#define RR_TRIES 8

struct rr_walk {
	struct skip at;
	struct service_state *state;
};

static __always_inline __u64 rr_cursor(__u32 position, __u32 incarnation)
{
	return position | (__u64)incarnation << 32;
}

/* Returns 1 when there is no more to try: the pick is ours, no other CPU moved
 * the cursor meanwhile, or there is none. */
static long rr_try(__u32 i, struct rr_walk *w)
{
	__u64 last = *(volatile __u64 *)&w->state->rr_cursor;
	__u32 count = w->at.pick->count;
	int own = last >> 32 == w->at.pick->incarnation;
	__u32 start = own && (__u32)last < count ? (__u32)last : count;
	__u64 next;

	w->at.lost = 0;
	skip_find(&w->at, start);
	if (w->at.id == NO_SERVER && start != count)
		skip_find(&w->at, count);
	if (w->at.lost)
		return 0;
	if (w->at.id == NO_SERVER || w->at.pick->peek || !own)
		return 1;
	next = rr_cursor(skip_position(&w->at), w->at.pick->incarnation);
	return __sync_val_compare_and_swap(&w->state->rr_cursor, last, next) == last;
}

static __noinline __u32 rr_pick(struct pick *p)
{
	__u32 service = p->service;
	struct service_state *state = service_state_of(service);
	struct rr_walk w = { .state = state };

	if (!state)
		return NO_SERVER;
	skip_begin(&w.at, p);
	w.at.bar = 1;
	HOOK(RR);
	bpf_loop(TRIES(RR_TRIES), rr_try, &w, 0);
	return w.at.id;
}

static __always_inline void rr_changed(struct change *c)
{
	struct service_state *state = service_state_of(c->service.id);
	__u32 incarnation = c->service.incarnation, last;

	if (!state)
		return;
	if (c->event == CHANGE_INIT || state->rr_cursor >> 32 != incarnation) {
		state->rr_cursor = rr_cursor(LIST_HEAD, incarnation);
		return;
	}
	if (c->event != CHANGE_DELETE)
		return;
	last = state->rr_cursor;
	if (last == LIST_HEAD || last < c->position)
		return;
	if (last > c->position)
		last--;
	else if (last >= c->service.count)
		last = LIST_HEAD; /* else its predecessor slid into its position */
	state->rr_cursor = rr_cursor(last, incarnation);
}

#endif
