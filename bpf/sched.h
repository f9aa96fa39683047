/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The schedulers: one header each under sched/, behind the contract in
 * sched/contract.h. What differs from one to the next is made of sched/list.h.
 */
#ifndef IMBANG_SCHED_H
#define IMBANG_SCHED_H

#include "sched/contract.h"
#include "sched/least.h"
#include "sched/list.h"
#include "sched/tree.h"
#include "sched/rr.h"
#include "sched/wrr.h"
#include "sched/dh.h"
#include "sched/sh.h"
#include "sched/lblc.h"
#include "sched/lblcr.h"
#include "sched/mh.h"
#include "sched/twos.h"

/* Global, so that the verifier looks at all schedulers once for a program. */
__noinline __u32 schedule(struct pick *p, enum scheduler scheduler)
{
	if (!p)
		return NO_SERVER;
	switch (scheduler) {
#define SCHED_CASE(NUMBER, name, number) \
	case SCHED_##NUMBER:             \
		return name##_pick(p);
		SCHEDULERS_BY_PICK(SCHED_CASE)
#undef SCHED_CASE
#define SCHED_CASE(NUMBER, name, number) case SCHED_##NUMBER:
		SCHEDULERS_BY_COST(SCHED_CASE)
#undef SCHED_CASE
		return least_pick(p, scheduler);
	case SCHED_NONE:
		break;
	}
	return NO_SERVER;
}

/* The scheduler by whose cost a service's tree is made; SCHED_NONE: it has no
 * tree. */
static __always_inline enum scheduler tree_rule(const struct service *svc)
{
	switch (svc->scheduler) {
#define SCHED_CASE(NUMBER, name, number) \
	case SCHED_##NUMBER:             \
		return name##_tree(svc->count);
		SCHEDULERS_BY_PICK(SCHED_CASE)
#undef SCHED_CASE
	default:
		return svc->scheduler;
	}
}

static __always_inline void scheduler_changed(struct change *c)
{
	struct service_state *state = service_state_of(c->service.id);

	if (state && c->event == CHANGE_INIT)
		state->incarnation = c->service.incarnation;
	tree_changed(c, tree_rule(&c->service));
	switch (c->service.scheduler) {
#define SCHED_CASE(NUMBER, name, number) \
	case SCHED_##NUMBER:             \
		name##_changed(c);       \
		break;
		SCHEDULERS_BY_PICK(SCHED_CASE)
#undef SCHED_CASE
	default:
		break; /* nothing but the tree */
	}
}

#endif
