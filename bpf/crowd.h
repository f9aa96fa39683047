/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which service has most of the unproven entries. Servers count them (proof.h); at each tick the
 * next CROWD_SHARE ids of servers have their turn. What a round has found is valid until the end of
 * the next one: with up to CROWD_SHARE ids it is a tick old, with 131 072 two seconds. It decides
 * who has to make room, not whether there is any.
 *
 * TCP is counted apart, as its clients can be challenged; services of marks may be of any
 * protocol and count as both.
 */
#ifndef IMBANG_CROWD_H
#define IMBANG_CROWD_H

#include "kernel.h"
#include "maps.h"
#include "settings.h"

#define CROWD_SHARE 4096

static long crowd_count(__u32 i, const __u32 *from)
{
	__u32 id = *from + i, unproven, service;
	struct load *l = bpf_map_lookup_elem(&loads, &id);
	struct server *s = bpf_map_lookup_elem(&servers, &id);
	struct crowding *all;
	struct crowd *c;

	if (!l || !s)
		return 1;
	unproven = l->overloaded / LOAD_UNPROVEN;
	if (!unproven)
		return 0;
	all = &state.attack.counting[s->owner.family == AF_INET6];
	if (s->owner.protocol == IPPROTO_TCP || s->owner.fwmark)
		all->tcp += unproven;
	service = s->service;
	c = bpf_map_lookup_elem(&crowds, &service);
	if (!c || s->owner.protocol == IPPROTO_TCP || !(s->flags & SERVER_AVAILABLE))
		return 0;
	if (c->round != state.attack.round) {
		c->round = state.attack.round;
		c->unproven = 0;
	}
	c->unproven += unproven;
	if (c->unproven > all->most) {
		all->most = c->unproven;
		all->service = service;
	}
	return 0;
}

/* At each tick. */
static __noinline void crowds_count(const struct settings *set)
{
	struct attack *a = &state.attack;
	__u32 from = a->server, left = set->servers > from ? set->servers - from : 0;

	bpf_loop(left < CROWD_SHARE ? left : CROWD_SHARE, crowd_count, &from, 0);
	a->server += CROWD_SHARE;
	if (left > CROWD_SHARE)
		return;
	a->crowds[0] = a->counting[0];
	a->crowds[1] = a->counting[1];
	__builtin_memset(a->counting, 0, sizeof(a->counting));
	a->server = 0;
	a->round++;
}

#endif
