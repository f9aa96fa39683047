/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The life of a connection: it begins with its first packet, follows the others,
 * and ends; its server's counts and its template follow.
 */
#ifndef IMBANG_CONN_LIFE_H
#define IMBANG_CONN_LIFE_H

#include "attack.h"
#include "conn.h"
#include "conn_state.h"
#include "defence.h"
#include "follow.h"
#include "hairpin.h"
#include "hook.h"
#include "load.h"
#include "removal.h"
#include "replies.h"
#include "template.h"

/* Whether a server is draining, and its deadline is over. */
static __always_inline int drain_over(const struct server *s)
{
	return s->flags & SERVER_DRAINING && s->drain_until && s->drain_until <= now_coarse_ns();
}

/* Whether a packet of a connection of such a server is answered with a reset. A SYN
 * begins anew, with another server. */
static __always_inline int reset_due(const struct packet *p, const struct server *s)
{
	return p->flow.protocol == IPPROTO_TCP && p->part == WHOLE &&
	       !(p->tcp_bits & (TCP_BIT_SYN | TCP_BIT_RST)) && drain_over(s);
}

/* Follows a packet's effect on state, counts and expiry (set_tcp_state). */
static __always_inline void conn_follow(struct packet *p, const struct flow *flow,
					const struct conn *seen, __u32 direction,
					const struct settings *set)
{
	struct conn_change change = { .was = seen->state, .state = seen->state };
	int moved;

	change.by = rules(seen->state, direction, set);
	change.server = seen->server;
	/* A later fragment says nothing of the connection, but that it lives. */
	moved = has_states(seen->state) && p->part != LATER_PART &&
		next_state(seen->state, p, change.by) != seen->state && conn_move(flow, p, &change);
	if (moved) {
		if (change.state != change.was) {
			p->news |= NEWS_STATE;
			p->was = change.was;
			p->state = change.state;
			handshake_follow(handshake_open(change.was, seen->flags, seen->forward),
					 handshake_open(change.state, seen->flags, seen->forward));
		}
		if (is_established(change.state) && !is_established(change.was))
			conn_assure(flow, seen);
		if (change.active)
			conn_counted(change.server, change.active);
	}
	if (seen->state == CONN_UDP && direction == FROM_SERVER)
		conn_assure(flow, seen);
	if (!moved)
		conn_extend(seen, conn_timeout(seen->server, seen->state, set));
	if (change.state != change.was) {
		HOOK(CONN_MOVED);
		follow_tell(flow, 0, FOLLOW_STATE, change.was);
	}
}

/* Notes what a reply says of a connection (reply_marks). */
static __noinline void conn_answered(const struct flow *flow, struct conn *seen, __u8 marks)
{
	int open = handshake_open(seen->state, seen->flags, seen->forward);

	if (!marks || !conn_mark(flow, seen->server, marks))
		return;
	seen->flags = flags_marked(seen->flags, marks);
	handshake_follow(open, handshake_open(seen->state, seen->flags, seen->forward));
}

/* What the first packet makes of a connection that is not there yet: as
 * conn_follow would. */
static __always_inline void conn_begin(const struct packet *p, struct conn *fresh,
				       const struct settings *set)
{
	__u8 state = state_before(p->flow.protocol);

	if (has_states(state))
		state = next_state(state, p,
				   rules(state,
					 replies_return(fresh->forward) ? FROM_CLIENT : CLIENT_ONLY,
					 set));
	fresh->state = state;
	fresh->in_packets = 1;
	/* While clients are challenged, only those that were proven come here. */
	if (state >= TCP_STATES || replies_return(fresh->forward) || !challenging(set))
		fresh->flags |= CONN_UNPROVEN;
	if (!counts_active(state))
		fresh->flags |= CONN_INACTIVE;
}

/* Whether another connection has these replies already and keeps them: one that is
 * active, or one as inactive as this. */
static __noinline int replies_kept(const struct flow *flow, const struct conn *c,
				   const struct server *s)
{
	struct flow replies, client = {};
	struct conn seen = {};

	conn_replies_flow(flow, c, s, &replies);
	return reply_conn(&replies, &client, &seen) && !flow_equal(&client, flow) &&
	       (c->flags & CONN_INACTIVE || !(seen.flags & CONN_INACTIVE));
}

/* Takes a line for a connection's replies, and sees for one for the connection. 0 if there is none.
 */
static __always_inline __u32 replies_room(const struct flow *flow)
{
	__u32 line;

	room_prepare(entry_kind(flow->family), 2);
	line = room_take(entry_kind(flow->family));
	if (line)
		room_prepare(entry_kind(flow->family), 1);
	return line;
}

/* Enters what the replies of a connection in the table are found by, or sees that nothing else
 * leads them elsewhere: 0, or an error. */
static __noinline int replies_enter(const struct flow *flow, const struct conn *c,
				    const struct server *s)
{
	struct flow replies;
	__s64 rc;

	conn_replies_flow(flow, c, s, &replies);
	rc = c->flags & CONN_HAS_REPLIES ? replies_put(&replies, c, 1) : replies_clear(&replies);
	if (rc > 0)
		replies_lost(rc);
	return rc < 0;
}

/* Enters a connection that its server and its template count already, and what its
 * replies are found by: 0, or not (see conn_insert). With -ECANCELED it was taken back, with
 * -ENOENT another CPU has removed it: see conn_withdrawn. The replies of one that user space enters
 * (`r`) may stay another's. `hairpins`: it may be one. */
static __always_inline int conn_enter(const struct flow *flow, struct conn *fresh,
				      const struct server *s, __u64 timeout,
				      const struct conn_record *r, int hairpins)
{
	int rc, returns = replies_return(fresh->forward);

	hairpins = hairpins && fresh->flags & CONN_HAIRPIN;
	if (r && !hairpins && returns && replies_kept(flow, fresh, s))
		returns = 0;
	else if (!hairpins && reply_listed(flow, fresh, s))
		fresh->flags |= CONN_LISTED;
	fresh->replies = fresh->flags & CONN_HAS_REPLIES ? replies_room(flow) : 0;
	if (fresh->flags & CONN_HAS_REPLIES && !fresh->replies) {
		defence_alarm();
		return -E2BIG;
	}
	rc = conn_insert(flow, fresh, timeout);
	if (rc && fresh->replies)
		room_give(fresh->replies);
	if (rc)
		return rc;
	if (!returns ||
	    !(hairpins ? hairpin_open(flow, fresh, s, r) : replies_enter(flow, fresh, s)))
		return 0;
	if (fresh->replies)
		room_give(fresh->replies);
	if (!hairpins) /* a hairpin may lack a port */
		defence_alarm();
	if (!conn_kill(flow, fresh, 0))
		return -ENOENT;
	conn_release(flow, fresh);
	entry_drop(flow, fresh);
	return -ECANCELED;
}

/* Whether a connection that could not be entered was in the table: then it is removed from
 * all counts, too. */
static __always_inline int conn_withdrawn(int rc)
{
	return rc == -ENOENT || rc == -ECANCELED;
}

/* Enters a connection for the packet's flow, as the caller filled it in, with
 * what the first packet makes of it: 0, or not; see conn_insert. */
static __always_inline int conn_create(struct packet *p, struct conn *fresh, const struct server *s,
				       const struct settings *set, int hairpins)
{
	__u8 before = state_before(p->flow.protocol);
	int rc;

	rc = conn_enter(&p->flow, fresh, s, conn_timeout(fresh->server, fresh->state, set), 0,
			hairpins);
	/* Who removed it at once has reported its end. */
	if (!rc || rc == -ENOENT)
		follow_tell(&p->flow, fresh, FOLLOW_OPEN, before);
	if (rc)
		return rc;
	p->news |= NEWS_OPENED;
	if (fresh->state != before) {
		p->news |= NEWS_STATE;
		p->was = before;
		p->state = fresh->state;
		handshake_follow(0, handshake_open(fresh->state, fresh->flags, fresh->forward));
	}
	if (is_established(fresh->state))
		conn_assure(&p->flow, fresh);
	return 0;
}

#endif
