/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The entry of a connection that a packet may open. It is in the table, dead and of this CPU alone,
 * from before a server is chosen until the connection lives or is given up. So the scheduler runs
 * once if several CPUs have a packet of one flow at the same time, and does not run for a packet
 * that finds no room. An outdated connection is killed first, and the new one uses its entry.
 */
#ifndef IMBANG_RESERVE_H
#define IMBANG_RESERVE_H

#include "conn_packet.h"
#include "removal.h"

/* Whether the connection of a packet's flow that was found to be outdated still is, and this CPU
 * has killed it now. */
static __always_inline int outdated_kill(struct packet *p, struct conn *seen)
{
	struct settings *set = get_settings();

	return conn_look(&p->flow, seen) && conn_outdated(p, seen, available_server(seen), set) &&
	       conn_kill(&p->flow, seen, KILL_SAME_STATE);
}

/* Ends that connection, and no other comes of the packet. */
__noinline int conn_end(struct packet *p)
{
	struct conn seen = {};

	if (p && outdated_kill(p, &seen))
		conn_remove(&p->flow, &seen);
	return 0;
}

/* Reserves the entry of a packet's connection: 0, or an error (conn_reserve). Its server counts an
 * outdated one until entry_vacate. */
__noinline int entry_reserve(struct packet *p)
{
	struct conn seen = {};
	__u32 index = 0;
	int rc;

	if (!p)
		return -EINVAL;
	if (p->outdated && outdated_kill(p, &seen)) {
		follow_tell(&p->flow, &seen, FOLLOW_CLOSE, 0);
		p->inherited.entry = seen.index;
		p->inherited.reuses = 1;
		return 0;
	}
	rc = conn_reserve(&p->flow, &index);
	if (rc == -E2BIG)
		defence_alarm();
	p->inherited.entry = index;
	return rc;
}

/* The outdated connection whose entry was reserved leaves its template, its replies and its
 * server. */
__noinline int entry_vacate(struct packet *p)
{
	struct conn *c = p ? entry_far(p->inherited.entry) : 0;
	struct conn seen = {};

	if (!p || !c)
		return 0;
	p->inherited.reuses = 0;
	conn_copy(c, &seen);
	conn_release(&p->flow, &seen);
	if (seen.flags & CONN_HAS_REPLIES)
		replies_forget(&seen);
	conn_reuse(c);
	conn_uncounted(&p->flow, &seen);
	return 0;
}

/* No connection comes of what was reserved, if anything was. */
__noinline int entry_withdraw(struct packet *p)
{
	struct conn *c = p && p->inherited.entry ? entry_far(p->inherited.entry) : 0;

	if (!c)
		return 0;
	if (entry_take_out(p->inherited.entry, entry_expires(c)))
		conn_leave(&p->flow);
	p->inherited.entry = 0;
	return 0;
}

#endif
