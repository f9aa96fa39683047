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
};

/* What the callback was given has a lock that Linux 6.1 takes for none: the flow is
 * looked up. */
static __always_inline void orphan_end(const struct flow *flow, const struct orphans *want)
{
	struct conn seen;
	struct server *s;

	if (flow->template != want->templates || !conn_look(flow, &seen))
		return;
	s = bpf_map_lookup_elem(&servers, &seen.server);
	if ((s && s->flags & SERVER_AVAILABLE) ||
	    !conn_kill(flow, &seen, flow->template ? KILL_UNHELD : 0))
		return;
	conn_remove(flow, &seen);
}

static long orphan4(void *map, const struct flow4 *key, void *c, struct orphans *want)
{
	struct flow flow;

	flow_from4(key, &flow);
	orphan_end(&flow, want);
	return 0;
}

static long orphan6(void *map, const struct flow *key, void *c, struct orphans *want)
{
	struct flow flow = *key;

	orphan_end(&flow, want);
	return 0;
}

static __always_inline void orphans_end(void)
{
	struct orphans conns = {}, templates = { .templates = 1 };

	bpf_for_each_map_elem(&conns4, orphan4, &conns, 0);
	bpf_for_each_map_elem(&conns6, orphan6, &conns, 0);
	bpf_for_each_map_elem(&conns4, orphan4, &templates, 0);
	bpf_for_each_map_elem(&conns6, orphan6, &templates, 0);
}

#endif
