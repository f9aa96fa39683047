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
#include "replies.h"
#include "template.h"

/* The entry of a connection's replies goes. */
static __noinline void conn_unlist(const struct flow *flow, const struct conn *c)
{
	struct flow reverse, client;
	__u32 server = c->server;
	struct server *s = bpf_map_lookup_elem(&servers, &server);

	if (!s)
		return;
	conn_reverse_flow(flow, c, s, &reverse);
	/* A client that reached the same server from the same port through
	 * another virtual address owns the entry now. */
	if (reverse_find(&reverse, &client) && flow_equal(&client, flow))
		reverse_forget(&reverse);
}

/* Removes a connection that this CPU has killed from the tables and from its server's
 * counts. */
static __noinline void conn_remove(const struct flow *flow, const struct conn *c)
{
	__u32 server = c->server;

	conn_release(flow, c);
	if (c->flags & CONN_HAIRPIN)
		hairpin_close(flow);
	else if (c->flags & CONN_LISTED)
		conn_unlist(flow, c);
	follow_tell(flow, c, FOLLOW_CLOSE, 0);
	conn_forget(flow);
	entry_counted(flow, server, c->flags, -1);
	/* Last: then the server's id may be given to another. */
	server_unbind(server, c->flags & CONN_INACTIVE);
}

/* For how much longer a server may have its connections [ns]: the setting
 * drain_timeout ends those of one that has weight 0 for so long. */
static __always_inline __u64 server_lease(const struct server *s, const struct settings *set)
{
	__u64 until, now;

	if (!set->drain_timeout || s->weight)
		return ~0ULL;
	until = s->quiescent + set->drain_timeout * NSEC_PER_SEC;
	now = now_coarse_ns();
	return until > now ? until - now : 0;
}

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

/* The time that a connection may live without a packet [ns]. */
static __always_inline __u64 conn_timeout(__u32 server, __u8 state, const struct settings *set)
{
	__u64 timeout = set->timeout[state & 31], lease;
	struct server *s;

	if (!set->drain_timeout)
		return timeout;
	s = bpf_map_lookup_elem(&servers, &server);
	lease = s ? server_lease(s, set) : timeout;
	return lease < timeout ? lease : timeout;
}

/* Follows a packet's effect on state, counts and expiry (set_tcp_state). */
static __always_inline void conn_follow(struct packet *p, const struct flow *flow,
					const struct conn *seen, __u32 direction,
					const struct settings *set)
{
	struct conn_change change = { .was = seen->state, .state = seen->state };
	__u64 timeout;

	change.by = rules(seen->state, direction, set);
	change.server = seen->server;
	/* A later fragment says nothing of the connection, but that it lives. */
	if (has_states(seen->state) && p->part != LATER_PART &&
	    next_state(seen->state, p, change.by) != seen->state && conn_move(flow, p, &change)) {
		if (change.state != change.was) {
			p->news |= NEWS_STATE;
			p->was = change.was;
			p->state = change.state;
			handshake_follow(
				handshake_open(change.was, seen->flags, seen->forward),
				handshake_open(change.state, seen->flags, seen->forward));
		}
		if (is_established(change.state) && !is_established(change.was))
			conn_assure(flow, seen);
		if (change.active)
			conn_counted(change.server, change.active);
	}
	if (seen->state == CONN_UDP && direction == FROM_SERVER)
		conn_assure(flow, seen);
	timeout = conn_timeout(change.server, change.state, set);
	/* When a state ends that another CPU gave it is not what was seen. */
	if (change.state != change.was || change.was != seen->state)
		conn_end_at(flow, seen, time_coarse() + timeout, change.state);
	else
		conn_extend(flow, seen, timeout, change.state);
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
	seen->flags = (seen->flags | marks) & ~(marks & CONN_UNPROVEN);
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

/* Whose the replies of a connection that is entered are, if others have the same. */
enum replies_to { REPLIES_TO_LATEST, REPLIES_TO_ACTIVE };

/* Whether another connection has these replies already and keeps them: one that is
 * active, or one as inactive as this. */
static __noinline int replies_kept(const struct flow *reverse, const struct flow *flow,
				   __u32 inactive)
{
	struct flow client;
	struct conn seen;

	return reply_conn(reverse, &client, &seen) && !flow_equal(&client, flow) &&
	       (inactive || !(seen.flags & CONN_INACTIVE));
}

/* Enters a connection that its server and its template count already, and what its
 * replies are found by: 0, or not; see conn_insert. */
static __always_inline int conn_enter(const struct flow *flow, struct conn *fresh,
				      const struct server *s, __u64 timeout, int inherits,
				      enum replies_to to)
{
	struct flow reverse;
	int rc;

	if (reply_listed(flow, fresh, s))
		fresh->flags |= CONN_LISTED;
	rc = conn_insert(flow, fresh, timeout, inherits);
	if (rc)
		return rc;
	if (!replies_return(fresh->forward) || fresh->flags & CONN_HAIRPIN)
		return 0;
	conn_reverse_flow(flow, fresh, s, &reverse);
	if (to == REPLIES_TO_ACTIVE && replies_kept(&reverse, flow, fresh->flags & CONN_INACTIVE))
		return 0;
	if (fresh->flags & CONN_LISTED) {
		if (reverse_enter(&reverse, flow, BPF_ANY)) {
			defence_alarm();
			return conn_take_back(flow, fresh) ? -ENOMEM : -ENOENT;
		}
	} else {
		reverse_clear(&reverse);
	}
	return 0;
}

/* Enters a connection for the packet's flow, as the caller filled it in, with
 * what the first packet makes of it: 0, or not; see conn_insert. */
static __always_inline int conn_create(struct packet *p, struct conn *fresh, const struct server *s,
				       const struct settings *set)
{
	__u8 before = state_before(p->flow.protocol);
	int rc;

	rc = conn_enter(&p->flow, fresh, s, conn_timeout(fresh->server, fresh->state, set), 1,
			REPLIES_TO_LATEST);
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
