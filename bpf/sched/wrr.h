/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Weighted round robin (ip_vs_wrr.c): servers of at least the current weight
 * take turns; after each walk over the list the current weight falls by the
 * greatest common divisor of the weights, and begins again at the highest.
 * Weights 4, 3, 2 give A A B A B C A B C.
 *
 * Linux subtracts (divisor - 1) from the highest weight, so that the last
 * walk is for weight 1 and finds a server whose weight fell meanwhile.
 */
#ifndef IMBANG_SCHED_WRR_H
#define IMBANG_SCHED_WRR_H

#include "contract.h"
#include "skip.h"
#include "weights.h"

#define wrr_tree(count) SCHED_FO

/* Servers looked at for one connection, at most, while an edit keeps us from
 * leaving any out: weights of many thousands make long walks. */
#define WRR_STEPS (1 << 20)

/*
 * The cursor: the position of the last pick (WRR_HEAD: none yet), the incarnation
 * that it belongs to, and the current weight, which is above 0. A service has fewer
 * than 2^24 servers; no packet is under way for 512 changes of a service's
 * scheduler.
 */
#define WRR_POSITION_BITS 24
#define WRR_INCARNATION_BITS 9
#define WRR_WEIGHT_SHIFT (WRR_POSITION_BITS + WRR_INCARNATION_BITS)
#define WRR_HEAD ((1U << WRR_POSITION_BITS) - 1)

static __always_inline __u64 wrr_cursor(__u32 position, __u32 incarnation, __u32 weight)
{
	return (position & WRR_HEAD) |
	       (__u64)(incarnation & ((1U << WRR_INCARNATION_BITS) - 1)) << WRR_POSITION_BITS |
	       (__u64)weight << WRR_WEIGHT_SHIFT;
}

/* Whether a cursor is an incarnation's. */
static __always_inline int wrr_own(__u64 cursor, __u32 incarnation)
{
	return !((cursor ^ wrr_cursor(0, incarnation, 0)) >> WRR_POSITION_BITS &
		 ((1U << WRR_INCARNATION_BITS) - 1));
}

struct wrr_walk {
	struct skip at; /* its bar is the current weight */
	struct service_state *state;
	__u64 last;     /* the cursor as it was */
	__s32 high;     /* the current weight then */
	__u32 own;      /* the cursor is the pick's incarnation's */
	__u32 start;    /* where we began */
	__u32 position; /* where we are; the count: the list's head */
	__s32 max;
	__s32 step;
};

static __always_inline void wrr_begin(struct wrr_walk *w)
{
	__u32 count = w->at.pick->count, position;

	w->last = *(volatile __u64 *)&w->state->wrr_cursor;
	w->own = wrr_own(w->last, w->at.pick->incarnation);
	w->high = w->last >> WRR_WEIGHT_SHIFT;
	position = w->last & WRR_HEAD;
	if (!w->own || w->high <= 0) { /* a weight of 0 would let drained servers in */
		w->high = w->max;
		position = count;
	}
	w->start = position < count ? position : count;
	w->position = w->start;
	w->at.bar = w->high;
	w->at.lost = 0;
}

/* Leaves out walks for a weight that no server has: as far as the highest that
 * one has, or the last walk. */
static __always_inline void wrr_sink(struct wrr_walk *w)
{
	__u32 id = skip_server(&w->at, 1), step = w->step, above;
	struct server *s = server_of(id);
	__s32 enough = s && s->weight > w->step ? s->weight : w->step;

	if (w->at.bar - w->step <= enough)
		return;
	above = w->at.bar - w->step - enough;
	w->at.bar -= (above + step - 1) / step * step;
}

/* No server up to the list's end: lower the bar, and go on from the head. Returns
 * 1 to give up: the lowest bar was for the whole list. */
static __always_inline int wrr_lower(struct wrr_walk *w)
{
	__u32 from = w->position;

	w->position = w->at.pick->count;
	if (w->at.leaves)
		wrr_sink(w);
	w->at.bar -= w->step;
	if (w->at.bar > 0)
		return 0;
	w->at.bar = w->max;
	return from == w->position;
}

/* Whether the first walk was for every weight, but only behind `start`, and
 * this is the next such: all that is left is what is up to there. */
static __always_inline int wrr_round(const struct wrr_walk *w)
{
	return w->position != w->start && w->high <= w->step && w->at.bar <= w->step;
}

/* One walk to the list's end. Returns 1 when the pick is ours: no other CPU
 * moved the cursor meanwhile. */
static long wrr_walk(__u32 i, struct wrr_walk *w)
{
	__u64 next;

	skip_find(&w->at, w->position);
	if (w->at.lost)
		goto again;
	if (wrr_round(w) && (w->at.id == NO_SERVER || skip_position(&w->at) < w->start)) {
		w->position = w->start;
		w->at.id = NO_SERVER;
	} else if (w->at.id != NO_SERVER) {
		w->position = skip_position(&w->at);
	} else if (!wrr_lower(w)) {
		return 0;
	}
	if (w->at.pick->peek || !w->own) /* not own: a change overtook the packet */
		return 1;
	next = wrr_cursor(w->position == w->at.pick->count ? WRR_HEAD : w->position,
			  w->at.pick->incarnation, w->at.bar);
	if (__sync_val_compare_and_swap(&w->state->wrr_cursor, w->last, next) == w->last)
		return 1;
again:
	wrr_begin(w);
	return 0;
}

static __noinline __u32 wrr_pick(struct pick *p)
{
	__u32 service = p->service;
	struct service_state *state = service_state_of(service);
	struct wrr_walk w = { .state = state };

	if (!state || !state->max_weight || !p->count)
		return NO_SERVER;
	w.max = state->max_weight;
	w.step = state->step;
	skip_begin(&w.at, p);
	wrr_begin(&w);
	HOOK(WRR);
	bpf_loop(WRR_STEPS / p->count + 1, wrr_walk, &w, 0);
	return w.at.id;
}

/* What a change makes of the current weight. */
struct wrr_change {
	struct weights weights; /* of the servers seen so far */
	__u32 from;             /* from this position on each is a change */
	__u32 max;
	__u32 step;
	__u32 weight;
};

static __always_inline void wrr_adjust(struct wrr_change *w)
{
	w->step = w->weights.step ? w->weights.step : 1;
	w->max = w->weights.max - (w->step - 1);
	if (w->weight > w->max || !w->weight)
		w->weight = w->max;
	else if (w->step > 1)
		w->weight = w->weight / w->step * w->step + 1;
}

static long wrr_weigh(__u32 position, struct wrr_change *w)
{
	struct server *s = weights_server(&w->weights, position);

	if (s)
		weigh(&w->weights, s->weight);
	if (position >= w->from)
		wrr_adjust(w);
	return 0;
}

static __noinline void wrr_changed(struct change *c)
{
	struct service_state *state = service_state_of(c->service.id);
	struct wrr_change w = { .weights.first = c->service.first };

	if (!state || c->event == CHANGE_DONE)
		return;
	/* Servers that came together count as if each had come alone. */
	w.from = c->event == CHANGE_ADD ? c->position : c->service.count - 1;
	if (c->event != CHANGE_INIT && wrr_own(state->wrr_cursor, c->service.incarnation))
		w.weight = state->wrr_cursor >> WRR_WEIGHT_SHIFT;
	bpf_loop(c->service.count, wrr_weigh, &w, 0);
	if (!c->service.count)
		wrr_adjust(&w);
	state->max_weight = w.max;
	state->step = w.step;
	state->wrr_cursor = wrr_cursor(WRR_HEAD, c->service.incarnation, w.weight);
}

#endif
