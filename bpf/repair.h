/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Corrects what the auditor found (`imbang audit --repair`). Packets and timers
 * go on meanwhile, so counts are corrected by atomic additions, lists under their
 * locks, and everything is compared first with what was found.
 */
#ifndef IMBANG_REPAIR_H
#define IMBANG_REPAIR_H

#include "conn.h"
#include "conn_entry.h"
#include "load.h"
#include "template.h"
#include "wheel.h"

/* Also judges whether the server is overloaded, as server_bind and server_unbind
 * would. */
static __noinline int repair_counts(const struct repair *r)
{
	__u32 id = r->server, total;
	struct server *s = bpf_map_lookup_elem(&servers, &id);
	struct load *l = bpf_map_lookup_elem(&loads, &id);

	if (!s || !l)
		return REPAIR_FAILED;
	__sync_fetch_and_add(&l->active, r->active);
	__sync_fetch_and_add(&l->inactive, r->inactive);
	__sync_fetch_and_add(&l->persistent, r->persistent);
	unproven_counted(id, r->unproven);
	total = l->active + l->inactive;
	if (s->upper && total >= s->upper)
		load_overloaded(l, 1);
	else if (s->lower ? total < s->lower : !s->upper || (__u64)total * 4 < (__u64)s->upper * 3)
		load_overloaded(l, 0);
	load_changed(id);
	return REPAIR_DONE;
}

static __noinline int repair_controlled(const struct repair *r)
{
	__u32 server = r->server;

	if (!r->flow.template)
		return REPAIR_CHANGED;
	return conn_hold(&r->flow, &server, r->controlled) ? REPAIR_DONE : REPAIR_CHANGED;
}

/* A timer entry in place of the one that was found not to be in a list. */
static __noinline int repair_timer(const struct repair *r)
{
	struct timer_change to = { .instead = r->number };
	struct conn seen = {};

	/* A dead one without an entry is of the wheel, which will not come. */
	if (!conn_look(&r->flow, &seen))
		to.owned = CONN_OWNED;
	else if (seen.number != r->number || seen.due != r->due)
		return REPAIR_CHANGED;
	return conn_book(&r->flow, &to, seen.expires) ? REPAIR_FAILED : REPAIR_DONE;
}

static __noinline int repair_give(const struct repair *r)
{
	struct flow flow;

	if (!timer_entry_flow(r->number, r->flow.family, &flow))
		return REPAIR_FAILED;
	if (!flow_equal(&flow, &r->flow) || flow.template != r->flow.template)
		return REPAIR_CHANGED;
	timer_entry_give(r->number, r->flow.family);
	return REPAIR_DONE;
}

static __noinline int repair_cut_slot(const struct repair *r)
{
	struct wheel_slot *slot = wheel_slot_of(r->from);
	__u32 number = r->number;
	int six = r->flow.family == AF_INET6, cut = 0;

	if (!slot)
		return REPAIR_FAILED;
	bpf_spin_lock(&slot->lock);
	if (six && slot->first6 == number) {
		slot->first6 = 0;
		cut = 1;
	}
	if (!six && slot->first4 == number) {
		slot->first4 = 0;
		cut = 1;
	}
	bpf_spin_unlock(&slot->lock);
	return cut ? REPAIR_DONE : REPAIR_CHANGED;
}

static __noinline int repair_cut_free(const struct repair *r)
{
	struct free_timer_entries *free = free_list_of(r->from, r->flow.family);
	__u32 number = r->number;
	int cut = 0;

	if (!free)
		return REPAIR_FAILED;
	bpf_spin_lock(&free->lock);
	if (free->first == number) {
		free->first = 0;
		cut = 1;
	}
	bpf_spin_unlock(&free->lock);
	return cut ? REPAIR_DONE : REPAIR_CHANGED;
}

static __noinline int repair_cut_entry(const struct repair *r)
{
	__u32 *next = timer_entry_next(r->from, r->flow.family);

	if (!next)
		return REPAIR_FAILED;
	return __sync_val_compare_and_swap(next, r->number, 0) == r->number ? REPAIR_DONE
									    : REPAIR_CHANGED;
}

static __always_inline int repair_one(const struct repair *r)
{
	switch (r->kind) {
	case REPAIR_COUNTS:
		return repair_counts(r);
	case REPAIR_CONTROLLED:
		return repair_controlled(r);
	case REPAIR_TIMER:
		return repair_timer(r);
	case REPAIR_GIVE:
		return repair_give(r);
	case REPAIR_CUT_SLOT:
		return repair_cut_slot(r);
	case REPAIR_CUT_FREE:
		return repair_cut_free(r);
	case REPAIR_CUT_ENTRY:
		return repair_cut_entry(r);
	}
	return REPAIR_FAILED;
}

#endif
