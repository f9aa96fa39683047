/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The end of an entry of the connection table, of a connection or of a template. What
 * belongs to it is entered after it and deleted before it: the entry of its replies, the call and
 * its number. So all of it is found by the entry, as long as that is there.
 *
 * The owner of a dead entry (conn_entry.h, rule 3) deletes one after the other. If the
 * kernel refuses to delete a call, or the entry's bucket cannot be claimed, the rest stays, and the
 * sweep deletes it when it comes by; until then the flow cannot be opened again. The server's
 * count follows the deletion of the entry itself, which succeeds once.
 */
#ifndef IMBANG_REMOVAL_H
#define IMBANG_REMOVAL_H

#include "call.h"
#include "conn.h"
#include "follow.h"
#include "load.h"
#include "replies.h"
#include "template.h"

/* Deletes what is left of a dead template: 0, or an error. */
static __always_inline long template_clear(const struct flow *key, const struct conn *t)
{
	long rc = is_call(key) ? call_forget(key) : 0;

	if (!rc)
		rc = conn_forget(t);
	if (rc)
		return rc;
	entry_counted(key, t->server, t->flags, -1);
	template_counted(t->server, -1);
	return 0;
}

/* Takes a connection from what its server counts. */
static __always_inline void conn_uncounted(const struct flow *flow, const struct conn *c)
{
	if (c->server == NO_SERVER) /* one that was reserved */
		return;
	entry_counted(flow, c->server, c->flags, -1);
	/* Last: then the server's id may be given to another. */
	server_unbind(c->server, c->flags & CONN_INACTIVE);
}

/* Likewise, of a dead entry, and then takes it from its server's count. */
static __always_inline long conn_clear(const struct flow *flow, const struct conn *c)
{
	long rc;

	if (flow->template)
		return template_clear(flow, c);
	if (c->flags & CONN_HAS_REPLIES)
		replies_forget(c);
	rc = conn_forget(c);
	if (!rc)
		conn_uncounted(flow, c);
	return rc;
}

/* Removes a template that this CPU has killed, or a connection that has let its template
 * go, without a report: 0, or an error, and it is left to the sweep. */
static __always_inline long entry_drop(const struct flow *flow, const struct conn *c)
{
	long rc = conn_clear(flow, c);

	if (rc)
		conn_leave(flow);
	return rc;
}

/* Likewise, and reports its end. */
static __always_inline long entry_remove(const struct flow *flow, const struct conn *c)
{
	follow_tell(flow, c, FOLLOW_CLOSE, 0);
	return entry_drop(flow, c);
}

/* Removes an entry that this CPU has killed, or that was left, of which the template has let go
 * and the end was reported: 0, or an error. */
static __noinline long conn_remove(const struct flow *flow, const struct conn *c)
{
	if (!(c->flags & CONN_DEAD)) {
		conn_release(flow, c);
		follow_tell(flow, c, FOLLOW_CLOSE, 0);
	}
	return entry_drop(flow, c);
}

/* Ends the template of a key if its time is over. */
__noinline int template_lapse(const struct flow *key)
{
	struct conn seen = {};

	if (!key || conn_due(key, now_coarse_ns(), &seen) != DUE_OVER)
		return 0;
	if (!(seen.flags & CONN_DEAD)) /* else it was left, and its end was reported */
		follow_tell(key, &seen, FOLLOW_CLOSE, 0);
	if (template_clear(key, &seen))
		conn_leave(key);
	return 0;
}

/* Ends the connection of a flow if its time is over; 1 if the flow has none now. */
__noinline int conn_lapse(const struct flow *flow)
{
	struct conn seen = {};

	return flow && conn_due(flow, now_coarse_ns(), &seen) == DUE_OVER &&
	       !conn_remove(flow, &seen);
}

#endif
