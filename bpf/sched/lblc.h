/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Locality-based least connection: a destination address stays with its
 * server until that is gone, quiescent or overloaded; then, and at first, wlc
 * chooses (ip_vs_lblc.c).
 *
 * Linux sweeps out entries that were not used for a day, earlier when there are
 * more than 16384; here the least recently used one leaves a full table, and
 * an entry of a day is no entry.
 */
#ifndef IMBANG_SCHED_LBLC_H
#define IMBANG_SCHED_LBLC_H

#include "contract.h"
#include "least.h"
#include "locality.h"

#define lblc_tree(count) SCHED_WLC
#define lblc_changed unchanging

static __noinline __u32 lblc_pick(struct pick *p)
{
	struct locality_key key;
	struct locality *cached, fresh = {};
	__u64 now = now_coarse_ns();

	locality_key(p, &key);
	cached = bpf_map_lookup_elem(&localities, &key);
	if (cached && now - cached->last_use < LOCALITY_EXPIRATION) {
		__u32 id = candidate(p, cached->server);
		struct server *s = server_far(id);
		struct load *l = load_far(id);

		if (!p->peek)
			cached->last_use = now;
		if (s && l && serves(s, p->service) && s->weight > 0 &&
		    !locality_overloaded(p, s, l))
			return id;
	}
	fresh.server = least_pick(p, SCHED_WLC);
	fresh.last_use = now;
	HOOK(LOCALITY_PUT);
	if (fresh.server != NO_SERVER && !p->peek)
		(void)map_update(localities, &key, &fresh, BPF_ANY);
	return fresh.server;
}

#endif
