/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Entries of the connection table, of connections and of templates: entered and extended.
 *
 * A packet moves `expires` and nothing else. The sweep (expiry.h) comes by each entry, and ends
 * it when its time is over.
 */
#ifndef IMBANG_CONN_H
#define IMBANG_CONN_H

#include "clock.h"
#include "conn_entry.h"
#include "defence.h"
#include "flow.h"
#include "hook.h"

/* How much `expires` may lag behind: both directions write it. */
#define EXPIRY_SLACK (NSEC_PER_SEC / 4)

/* The flow of the entry of the server's replies (replies.h). */
static __always_inline void conn_replies_flow(const struct flow *flow, const struct conn *c,
					      const struct server *s, struct flow *replies)
{
	replies->src = s->addr;
	replies->dst = flow->src;
	replies->sport = c->port;
	replies->dport = flow->sport;
	replies->protocol = flow->protocol;
	replies->template = FLOW_REPLIES;
	replies->family = flow->family;
	replies->pad = 0;
}

/* When a connection is to end that lives for another `timeout` [ns]; 0 if that is
 * about when it does anyway: both directions write there, spare the cache line. */
static __always_inline __u64 conn_later(const struct conn *c, __u64 now, __u64 timeout)
{
	__u64 expires = now + timeout;
	__s64 moved = expires - c->expires;

	return moved > -(__s64)EXPIRY_SLACK && moved < (__s64)EXPIRY_SLACK ? 0 : expires;
}

/* Lets a connection live for another `timeout` [ns], as it was seen. */
static __always_inline void conn_extend(const struct conn *seen, __u64 timeout)
{
	__u64 expires = conn_later(seen, time_coarse(), timeout);
	struct conn *c = expires ? entry_far(seen->index) : 0;

	HOOK(CONN_EXTEND);
	if (c)
		conn_prolong(c, seen->expires, expires);
}

/*
 * Enters an entry, or makes it of the one that was reserved for it (`index`): 0, or not when there
 * is no room (-E2BIG), or when its flow has one (-EEXIST), which may be over (conn_lapse).
 */
static __always_inline int conn_insert(const struct flow *flow, struct conn *fresh, __u64 timeout)
{
	int rc;

	fresh->expires = now_coarse_ns() + timeout;
	HOOK(CONN_INSERT);
	rc = fresh->index ? 0 : conn_reserve(flow, &fresh->index);
	if (rc == -E2BIG)
		defence_alarm();
	if (rc)
		return rc;
	entry_counted(flow, fresh->server, fresh->flags, 1);
	conn_publish(fresh);
	HOOK(CONN_INSERTED);
	return 0;
}

#endif
