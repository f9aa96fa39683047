/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * An upgrade whose connection table has another layout enters the earlier
 * build's connections again, here. Their servers count them already, as loads are
 * kept; so do their templates.
 */
#ifndef IMBANG_ADOPT_H
#define IMBANG_ADOPT_H

#include "clock.h"
#include "conn.h"
#include "conn_entry.h"
#include "load.h"
#include "template.h"

/* The new build was first with a connection of this flow: the earlier one is over. */
static __noinline enum adoption_result adopt_superseded(const struct flow *flow, __u32 server,
							const struct control *control,
							__u32 inactive)
{
	if (flow->template) {
		template_counted(server, -1);
		return ADOPTION_SUPERSEDED;
	}
	if (control->kind)
		template_release(flow, control);
	server_unbind(server, inactive);
	return ADOPTION_SUPERSEDED;
}

static __noinline enum adoption_result adopt_entry(const struct adoption *a)
{
	struct control control = {};
	struct conn fresh = {};
	struct flow flow = a->flow;
	__u64 now = now_coarse_ns();
	int rc;

	fresh.server = a->server;
	fresh.port = a->port;
	fresh.state = a->state;
	fresh.flags = a->flags | CONN_ADOPTED;
	fresh.template = a->template;
	fresh.forward = a->forward;
	fresh.in_packets = a->in_packets;
	fresh.fwmark = a->fwmark;
	fresh.netmask = a->netmask;
	control.kind = a->template;
	control.netmask = a->netmask;
	control.fwmark = a->fwmark;
	control.server = a->server;
	rc = conn_insert(&flow, &fresh, a->expires > now ? a->expires - now : 0, 0);
	if (!rc)
		return ADOPTION_DONE;
	if (rc != -EEXIST)
		return ADOPTION_NO_ROOM;
	/* An upgrade that was interrupted came so far. */
	if (conn_look(&flow, &fresh) && fresh.flags & CONN_ADOPTED)
		return ADOPTION_DONE;
	return adopt_superseded(&flow, control.server, &control, a->flags & CONN_INACTIVE);
}

static long adopt_one(__u32 i, void *unused)
{
	struct adoption *a = bpf_map_lookup_elem(&adoptions, &i);

	if (a && a->flow.family)
		a->result = adopt_entry(a);
	return 0;
}

#endif
