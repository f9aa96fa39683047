/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Ends the connections of servers that are gone, when expire_nodest_conn says
 * so (ip_vs_expire_nodest_conn_flush). Templates come second: those that still
 * control a connection stay.
 */
#ifndef IMBANG_ORPHANS_H
#define IMBANG_ORPHANS_H

#include "conn_life.h"
#include "template.h"

struct orphans {
	__u32 templates; /* they, or the connections */
	__u32 from;      /* entries of a block, from this one on */
};

static long orphan_end(__u32 i, struct orphans *want)
{
	__u32 n = want->from + i;
	struct flow flow = {};
	struct server *s;
	struct conn seen = {};

	if (!entry_look(entry_at(n), &flow, &seen) || flow.template != want->templates)
		return 0;
	s = server_far(seen.server);
	if ((s && s->flags & SERVER_AVAILABLE) ||
	    !conn_kill(&flow, &seen, flow.template ? KILL_UNHELD : 0))
		return 0;
	conn_remove(&flow, &seen);
	return 0;
}

static long orphans_of_block(__u32 block, struct orphans *want)
{
	want->from = block * BLOCK_ENTRIES;
	bpf_loop(BLOCK_ENTRIES, orphan_end, want, 0);
	return 0;
}

static __always_inline void orphans_end(void)
{
	struct orphans conns = {}, templates = { .templates = 1 };

	bpf_loop(entries_at() / BLOCK_ENTRIES, orphans_of_block, &conns, 0);
	bpf_loop(entries_at() / BLOCK_ENTRIES, orphans_of_block, &templates, 0);
}

#endif
