/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Round robin: the next server after the last pick that can take a
 * connection; a weight counts only as being above zero (ip_vs_rr.c).
 *
 * The last pick is a position in order of addition, so that a server added
 * later moves nothing; a deleted server's predecessor in the list takes its
 * place. CPUs that pick at once agree by compare-and-swap: none repeats
 * another's turn.
 */
#ifndef IMBANG_SCHED_RR_H
#define IMBANG_SCHED_RR_H

#define RR_TRIES 8

struct rr_walk {
	struct service_state *state;
	struct pick *pick;
	__u32 count;
	__u32 start; /* position of the last pick; count: the list's head */
	__u32 position;
	__u32 id;
};

static long rr_visit(__u32 i, struct rr_walk *w)
{
	__u32 position = w->start > i ? w->start - 1 - i : w->start + w->count - 1 - i;
	__u32 id = candidate(w->pick, server_id_at(w->pick->first, position));
	struct server *s = bpf_map_lookup_elem(&servers, &id);
	struct load *l = bpf_map_lookup_elem(&loads, &id);

	if (!s || !l || !usable(s, l))
		return 0;
	w->position = position;
	w->id = id;
	return 1;
}

/* Returns 1 when there is no more to try: the pick is ours, no other CPU moved
 * the cursor meanwhile, or there is none. */
static long rr_try(__u32 i, struct rr_walk *w)
{
	__u64 last = *(volatile __u64 *)&w->state->cursor;

	w->start = (__u32)last < w->count ? (__u32)last : w->count;
	w->id = NO_SERVER;
	/* count steps from the head end at the tail; from a server, with
	 * that server itself */
	bpf_loop(w->count, rr_visit, w, 0);
	if (w->id == NO_SERVER || w->pick->peek)
		return 1;
	return __sync_val_compare_and_swap(&w->state->cursor, last, (__u64)w->position) == last;
}

static __noinline __u32 rr_pick(struct pick *p)
{
	__u32 service = p->service;
	struct service_state *state = bpf_map_lookup_elem(&service_states, &service);
	struct rr_walk w = { .state = state, .pick = p, .count = p->count };

	if (!state)
		return NO_SERVER;
	w.id = NO_SERVER;
	bpf_loop(RR_TRIES, rr_try, &w, 0);
	return w.id;
}

static __always_inline void rr_changed(struct change *c)
{
	struct service_state *state = bpf_map_lookup_elem(&service_states, &c->service.id);
	__u32 last;

	if (!state)
		return;
	if (c->event == CHANGE_INIT) {
		state->cursor = LIST_HEAD;
		return;
	}
	if (c->event != CHANGE_DELETE)
		return;
	last = state->cursor;
	if (last == LIST_HEAD || last < c->position)
		return;
	if (last > c->position)
		state->cursor = last - 1;
	else /* its predecessor slid into its position, or there is none */
		state->cursor = last < c->service.count ? last : LIST_HEAD;
}

#endif
