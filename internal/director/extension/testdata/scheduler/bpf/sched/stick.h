/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Made up, for a test: a client's address keeps the server that it got first,
 * for as long as that can take connections; another gets the first of the list
 * that can.
 */
#ifndef IMBANG_SCHED_STICK_H
#define IMBANG_SCHED_STICK_H

#include "contract.h"

#define stick_tree(count) SCHED_NONE
#define stick_changed unchanging

struct stick_key {
	__u32 service; /* id */
	union address client;
};

/* kernel: the server ids of clients. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct stick_key);
	__type(value, __u32);
} sticks SEC(".maps");

struct stick_walk {
	struct pick *pick;
	__u32 id;
};

static __always_inline int stick_usable(__u32 id)
{
	struct server *s = server_of(id);
	struct load *l = load_of(id);

	return s && l && s->flags & SERVER_AVAILABLE && usable(s, l);
}

static long stick_visit(__u32 i, struct stick_walk *w)
{
	__u32 id = server_id_nth(w->pick, i);

	if (!stick_usable(id))
		return 0;
	w->id = id;
	return 1;
}

static __noinline __u32 stick_pick(struct pick *p)
{
	struct stick_walk w = { .pick = p, .id = NO_SERVER };
	struct stick_key key = {};
	__u32 *known, id;

	key.service = p->service;
	key.client = p->src;
	known = bpf_map_lookup_elem(&sticks, &key);
	if (known) {
		id = candidate(p, *known);
		if (stick_usable(id))
			return id;
	}
	bpf_loop(p->count, stick_visit, &w, 0);
	id = w.id;
	if (id != NO_SERVER && !p->peek)
		bpf_map_update_elem(&sticks, &key, &id, BPF_ANY);
	return id;
}

#endif
