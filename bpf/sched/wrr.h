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

#define WRR_TRIES 8

/* Servers looked at for one connection, at most: weights of many thousands
 * make long walks. */
#define WRR_STEPS (1 << 20)

struct wrr_walk {
	struct service_state *state;
	struct pick *pick;
	__u32 count;
	__u32 position; /* where we are; count: the list's head */
	__u32 start;    /* where we began */
	__u32 stop;     /* give up behind this position */
	__u32 id;
	__s32 weight; /* the current weight */
	__s32 max;
	__s32 step;
	__u8 last_walk;
	__u8 restarted;
};

#define WRR_NO_STOP 0xfffffffeU

/* The end of the list: lower the bar. Returns 1 to give up. */
static __always_inline long wrr_lower(struct wrr_walk *w)
{
	w->position = w->count;
	w->weight -= w->step;
	if (w->weight <= 0) {
		w->weight = w->max;
		if (w->last_walk || w->start == w->count)
			return 1;
		w->restarted = 1;
	}
	w->last_walk = w->weight <= w->step;
	/* The first walk was for every weight, but only behind `start`: now
	 * look at those up to it. */
	if (w->last_walk && w->restarted && w->start != w->count)
		w->stop = w->start;
	return 0;
}

static long wrr_visit(__u32 i, struct wrr_walk *w)
{
	struct server *s;
	struct load *l;
	__u32 id;

	if (!w->position)
		return wrr_lower(w);
	w->position--;
	id = candidate(w->pick, server_id_at(w->pick->first, w->position));
	s = bpf_map_lookup_elem(&servers, &id);
	l = bpf_map_lookup_elem(&loads, &id);
	if (s && l && !l->overloaded && s->weight >= w->weight) {
		w->id = id;
		return 1;
	}
	return w->position == w->stop;
}

/* Returns 1 when the pick is ours: no other CPU moved the cursor meanwhile. */
static long wrr_try(__u32 i, struct wrr_walk *w)
{
	__u64 last = *(volatile __u64 *)&w->state->cursor;
	__u64 next;

	w->position = (__u32)last < w->count ? (__u32)last : w->count;
	w->start = w->position;
	w->stop = WRR_NO_STOP;
	w->weight = last >> 32;
	w->id = NO_SERVER;
	w->last_walk = 0;
	w->restarted = 0;
	bpf_loop(WRR_STEPS, wrr_visit, w, 0);
	if (w->pick->peek)
		return 1;
	next = w->position == w->count ? LIST_HEAD : w->position;
	next |= (__u64)(__u32)w->weight << 32;
	return __sync_val_compare_and_swap(&w->state->cursor, last, next) == last;
}

static __noinline __u32 wrr_pick(struct pick *p)
{
	__u32 service = p->service;
	struct service_state *state = bpf_map_lookup_elem(&service_states, &service);
	struct wrr_walk w = { .state = state, .pick = p, .count = p->count };

	if (!state || !state->max_weight || !p->count)
		return NO_SERVER;
	w.max = state->max_weight;
	w.step = state->step;
	w.id = NO_SERVER;
	bpf_loop(WRR_TRIES, wrr_try, &w, 0);
	return w.id;
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
	struct service_state *state = bpf_map_lookup_elem(&service_states, &c->service.id);
	struct wrr_change w = { .weights.first = c->service.first };

	if (!state || c->event == CHANGE_DONE)
		return;
	/* Servers that came together count as if each had come alone. */
	w.from = c->event == CHANGE_ADD ? c->position : c->service.count - 1;
	w.weight = c->event == CHANGE_INIT ? 0 : state->cursor >> 32;
	bpf_loop(c->service.count, wrr_weigh, &w, 0);
	if (!c->service.count)
		wrr_adjust(&w);
	state->max_weight = w.max;
	state->step = w.step;
	state->cursor = LIST_HEAD | (__u64)w.weight << 32;
}

#endif
