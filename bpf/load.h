/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The connections that a server counts, and whether it has reached its upper
 * threshold (ip_vs_bind_dest, ip_vs_unbind_dest).
 */
#ifndef IMBANG_LOAD_H
#define IMBANG_LOAD_H

#include "by_id.h"
#include "maps.h"
#include "sched.h"

/* Notes whether a server has reached its upper threshold. While an upgrade still counts
 * connections, a server that had is not judged by those which are counted already. */
static __always_inline void load_overloaded(struct load *l, int now)
{
	if (!now && get_settings()->adopting)
		return;
	if (now && !overloaded(l))
		__sync_fetch_and_or(&l->overloaded, LOAD_OVERLOADED);
	if (!now && overloaded(l))
		__sync_fetch_and_and(&l->overloaded, ~LOAD_OVERLOADED);
}

/* ip_vs_bind_dest: count a new connection. */
static __always_inline void server_bind(const struct server *s, struct load *l, __u32 inactive)
{
	__u32 total;

	__sync_fetch_and_add(inactive ? &l->inactive : &l->active, 1);
	total = l->active + l->inactive;
	if (s->upper && total >= s->upper)
		load_overloaded(l, 1);
}

/* ip_vs_unbind_dest: and take one back. */
static __always_inline void server_unbind(__u32 server, __u32 inactive)
{
	struct server *s = server_far(server);
	struct load *l = load_far(server);
	__u32 total;

	if (!s || !l)
		return;
	__sync_fetch_and_add(inactive ? &l->inactive : &l->active, -1);
	total = l->active + l->inactive;
	if (s->lower) {
		if (total < s->lower)
			load_overloaded(l, 0);
	} else if (!s->upper || (__u64)total * 4 < (__u64)s->upper * 3) {
		load_overloaded(l, 0);
	}
	load_changed(server);
}

/* Its upper threshold was raised or removed; the scheduler is told next. */
static __always_inline void server_reopen(__u32 server)
{
	struct load *l = load_far(server);

	if (l)
		load_overloaded(l, 0);
}

/* Its server's counts follow. */
static __always_inline void conn_counted(__u32 server, __s32 active)
{
	struct load *l = load_far(server);

	if (!l)
		return;
	__sync_fetch_and_add(&l->active, active);
	__sync_fetch_and_add(&l->inactive, -active);
	load_changed(server);
}

#endif
