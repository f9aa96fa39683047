/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The connection table: find, create, follow, expire.
 *
 * A packet moves `expires` and nothing else: the connection keeps its
 * appointment on the wheel, and gets a later one when that is due. Only a
 * connection that is to end much earlier makes another, so a settled
 * connection's packets cost no more than a store.
 */
#ifndef IMBANG_CONN_H
#define IMBANG_CONN_H

#include "answers.h"
#include "attack.h"
#include "counters.h"
#include "defence.h"
#include "flow.h"
#include "hairpin.h"
#include "sched.h"
#include "sctp_state.h"
#include "tcp.h"
#include "wheel.h"

/* How much `expires` may lag behind: both directions write it. */
#define EXPIRY_SLACK (NSEC_PER_SEC / 4)

static __always_inline struct settings *get_settings(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&config, &zero);
}

/* ip_vs_bind_dest: count a new connection. */
static __always_inline void server_bind(const struct server *s, struct load *l, __u32 inactive)
{
	__u32 total;

	__sync_fetch_and_add(inactive ? &l->inactive : &l->active, 1);
	total = l->active + l->inactive;
	if (s->upper && total >= s->upper)
		l->overloaded = 1;
}

/* ip_vs_unbind_dest: and take one back. */
static __always_inline void server_unbind(__u32 server, __u32 inactive)
{
	struct server *s = bpf_map_lookup_elem(&servers, &server);
	struct load *l = bpf_map_lookup_elem(&loads, &server);
	__u32 total;

	if (!s || !l)
		return;
	__sync_fetch_and_add(inactive ? &l->inactive : &l->active, -1);
	total = l->active + l->inactive;
	if (s->lower) {
		if (total < s->lower)
			l->overloaded = 0;
	} else if (!s->upper || (__u64)total * 4 < (__u64)s->upper * 3) {
		l->overloaded = 0;
	}
	load_changed(server);
}

/* Its upper threshold was raised or removed; the scheduler is told next. */
static __always_inline void server_reopen(__u32 server)
{
	struct load *l = bpf_map_lookup_elem(&loads, &server);

	if (l)
		l->overloaded = 0;
}

/* The flow of the server's answers. */
static __always_inline void conn_reverse_flow(const struct flow *flow, const struct conn *c,
					      const struct server *s, struct flow *reverse)
{
	reverse->src = s->addr;
	reverse->dst = flow->src;
	reverse->sport = c->port;
	reverse->dport = flow->sport;
	reverse->protocol = flow->protocol;
	reverse->template = 0;
	reverse->family = flow->family;
	reverse->pad = 0;
}

/* Marks a connection as being removed; its flags before. */
static __always_inline __u8 conn_kill(struct conn *c)
{
	__u8 flags;

	bpf_spin_lock(&c->lock);
	flags = c->flags;
	c->flags |= CONN_DEAD;
	bpf_spin_unlock(&c->lock);
	return flags;
}

/* An answer came by. */
static __always_inline void conn_answered(struct conn *c)
{
	if (answers_seen(c))
		return;
	bpf_spin_lock(&c->lock);
	c->flags |= CONN_ANSWERED;
	bpf_spin_unlock(&c->lock);
}

static __always_inline void conn_release(const struct flow *flow, const struct conn *c);

/* Removes a connection from the tables and from its server's counts. Safe to
 * call from several places at once: only one of them finds it alive. */
static __noinline void conn_remove(const struct flow *flow, struct conn *c)
{
	struct flow reverse, client;
	__u32 server = c->server;
	struct server *s;
	__u8 flags = conn_kill(c);

	if (flags & CONN_DEAD)
		return;
	conn_release(flow, c);
	s = bpf_map_lookup_elem(&servers, &server);
	if (flags & CONN_HAIRPIN) {
		hairpin_close(flow);
	} else if (s && flags & CONN_LISTED) {
		conn_reverse_flow(flow, c, s, &reverse);
		/* A client that reached the same server from the same port
		 * through another virtual address owns the entry now. */
		if (reverse_find(&reverse, &client) && flow_equal(&client, flow))
			reverse_forget(&reverse);
	}
	conn_forget(flow);
	/* Last: then the server's id may be given to another. */
	server_unbind(server, flags & CONN_INACTIVE);
}

/* When a connection is to end that lives for another `timeout` [ns]; 0 if that is
 * about when it does anyway: both directions write there, spare the cache line. */
static __always_inline __u64 conn_later(const struct conn *c, __u64 now, __u64 timeout)
{
	__u64 expires = now + timeout;
	__s64 moved = expires - c->expires;

	return moved > -(__s64)EXPIRY_SLACK && moved < (__s64)EXPIRY_SLACK ? 0 : expires;
}

/* Whether its appointment is early enough for that. */
static __always_inline int appointed_before(const struct conn *c, __u64 expires)
{
	return (__s32)(c->tick - tick_after(expires)) <= 1;
}

/* Lets the connection live for another `timeout` [ns]. */
static __always_inline void conn_extend(const struct flow *flow, struct conn *c, __u64 timeout)
{
	__u64 now = time_coarse();
	__u64 expires = conn_later(c, now, timeout);
	__u32 tick, number;

	if (!expires)
		return;
	c->expires = expires;
	if (appointed_before(c, expires))
		return;
	tick = wheel_appoint(flow, expires, now, &number);
	if (!tick)
		return;
	c->tick = tick;
	c->number = number;
}

static __always_inline void conn_assure(const struct flow *flow, const struct conn *c);

/* Whether packets change the state. */
static __always_inline int has_states(__u8 state)
{
	return state < TCP_STATES || state >= SCTP_NONE;
}

static __always_inline __u8 next_state(__u8 state, const struct packet *p, __u32 direction)
{
	if (state >= SCTP_NONE)
		return sctp_next_state(state, p->chunk, direction);
	return tcp_next_state(state, p->tcp_bits, direction);
}

/* By which rules a packet changes the state. */
static __always_inline __u32 rules(__u8 state, __u32 direction, const struct settings *set)
{
	if (state < TCP_STATES && defence_works(set->secure_tcp))
		return direction + SECURE;
	return direction;
}

static __always_inline int is_established(__u8 state)
{
	return state == TCP_ESTABLISHED || state == SCTP_ESTABLISHED;
}

static __always_inline int counts_active(__u8 state)
{
	return tcp_active(state) || state == SCTP_ESTABLISHED;
}

/* Changes the state, and whether it counts as active: 1, -1, 0 if as before. Under the
 * connection's lock. */
static __always_inline __s32 conn_become(struct conn *c, __u8 state)
{
	int now = counts_active(state);

	c->state = state;
	if (c->flags & CONN_DEAD || now == !(c->flags & CONN_INACTIVE))
		return 0;
	c->flags ^= CONN_INACTIVE;
	return now ? 1 : -1;
}

/* Its server's counts follow. */
static __always_inline void conn_counted(__u32 server, __s32 active)
{
	struct load *l = bpf_map_lookup_elem(&loads, &server);

	if (!l)
		return;
	__sync_fetch_and_add(&l->active, active);
	__sync_fetch_and_add(&l->inactive, -active);
	load_changed(server);
}

/* Changes the state by a packet, likewise. */
static __always_inline __s32 conn_move(const struct packet *p, struct conn *c, __u32 direction,
				       __u8 *state)
{
	__s32 active;
	__u8 next;

	bpf_spin_lock(&c->lock);
	next = next_state(c->state, p, direction);
	active = conn_become(c, next);
	bpf_spin_unlock(&c->lock);
	*state = next;
	return active;
}

/* For how much longer a server may have its connections [ns]: the setting
 * drain_timeout ends those of one that has weight 0 for so long. */
static __always_inline __u64 server_lease(const struct server *s, const struct settings *set)
{
	__u64 until, now;

	if (!set->drain_timeout || s->weight)
		return ~0ULL;
	until = s->quiescent + set->drain_timeout * NSEC_PER_SEC;
	now = bpf_ktime_get_coarse_ns();
	return until > now ? until - now : 0;
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
static __always_inline void conn_follow(struct packet *p, const struct flow *flow, struct conn *c,
					__u32 direction, const struct settings *set)
{
	__u8 state = c->state, was = state;
	__u32 by = rules(state, direction, set), server = c->server;

	/* A later fragment says nothing of the connection, but that it lives. */
	if (has_states(state) && p->part != LATER_PART && next_state(state, p, by) != state) {
		__s32 active = conn_move(p, c, by, &state);

		if (state != was) {
			p->news |= NEWS_STATE;
			p->was = was;
			p->state = state;
			handshake_follow(was, state);
		}
		if (is_established(state) && !is_established(was))
			conn_assure(flow, c);
		if (active)
			conn_counted(server, active);
	}
	if (state == CONN_UDP && direction == FROM_SERVER)
		conn_assure(flow, c);
	conn_extend(flow, c, conn_timeout(server, state, set));
}

/* Takes back an entry that cannot be completed. Its server still counts it, as
 * inactive, whatever a packet made of it meanwhile, until the caller unbinds it. */
static __always_inline void conn_abandon(const struct flow *flow)
{
	struct conn *c = conn_find(flow);
	__u32 server;
	struct load *l;
	__u8 flags;

	if (!c)
		return;
	server = c->server;
	l = bpf_map_lookup_elem(&loads, &server);
	flags = conn_kill(c);
	if (flags & CONN_DEAD)
		return;
	if (l && !flow->template && !(flags & CONN_INACTIVE)) {
		__sync_fetch_and_add(&l->active, -1);
		__sync_fetch_and_add(&l->inactive, 1);
	}
	conn_forget(flow);
}

/* Whether an appointment that was inherited will do: the entry is there, and the
 * time of the appointment still to come. */
static __always_inline int appointment_serves(const struct conn *fresh, __u64 now)
{
	return fresh->number && (__s32)(fresh->tick - tick_after(now)) > 1 &&
	       (__s32)(fresh->tick - tick_after(fresh->expires)) <= 0;
}

/*
 * Puts an entry into the table and makes an appointment for it: 0, or not when
 * there is no room, or when another CPU was first. The appointment enters its
 * list last: a full table must not leave any behind that crowd out others'.
 */
static __always_inline int conn_insert(const struct flow *flow, struct conn *fresh, __u64 timeout)
{
	__u64 now = bpf_ktime_get_coarse_ns();
	__u32 booked = 0;

	fresh->expires = now + timeout;
	if (!appointment_serves(fresh, now)) {
		booked = wheel_book(flow);
		if (!booked)
			goto full;
		fresh->number = booked;
		fresh->tick = wheel_tick_for(fresh->expires, now);
	}
	if (conn_put(flow, fresh)) {
		if (booked)
			appointment_give(booked, flow->family);
		if (conn_find(flow))
			return -EEXIST;
		goto full;
	}
	if (!booked || wheel_enter(booked, flow->family, fresh->tick))
		return 0;
	conn_abandon(flow);
	fresh->flags |= CONN_INACTIVE;
	appointment_give(booked, flow->family);
full:
	defence_alarm();
	return -ENOMEM;
}

/* What a connection is before its first packet. */
static __always_inline __u8 state_before(__u8 protocol)
{
	if (protocol == IPPROTO_TCP)
		return TCP_NONE;
	return protocol == IPPROTO_SCTP ? SCTP_NONE : CONN_UDP;
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
					 answers_here(fresh->forward) ? FROM_CLIENT : CLIENT_ONLY,
					 set));
	fresh->state = state;
	fresh->in_packets = 1;
	if (!counts_active(state))
		fresh->flags |= CONN_INACTIVE;
}

/* Enters a connection for the packet's flow, as the caller filled it in, with
 * what the first packet makes of it: 0, or not. */
static __always_inline int conn_create(struct packet *p, struct conn *fresh, const struct server *s,
				       const struct settings *set)
{
	__u8 before = state_before(p->flow.protocol);
	struct flow reverse;

	if (answers_listed(&p->flow, fresh, s))
		fresh->flags |= CONN_LISTED;
	if (conn_insert(&p->flow, fresh, conn_timeout(fresh->server, fresh->state, set)))
		return -ENOMEM;
	if (fresh->flags & CONN_LISTED) {
		conn_reverse_flow(&p->flow, fresh, s, &reverse);
		if (reverse_enter(&reverse, &p->flow, BPF_ANY)) {
			conn_abandon(&p->flow);
			fresh->flags |= CONN_INACTIVE;
			defence_alarm();
			return -ENOMEM;
		}
	} else if (answers_here(fresh->forward) && !(fresh->flags & CONN_HAIRPIN)) {
		conn_reverse_flow(&p->flow, fresh, s, &reverse);
		reverse_clear(&reverse);
	}
	p->news |= NEWS_OPENED;
	if (fresh->state != before) {
		p->news |= NEWS_STATE;
		p->was = before;
		p->state = fresh->state;
		handshake_follow(before, fresh->state);
	}
	if (is_established(fresh->state))
		conn_assure(&p->flow, fresh);
	return 0;
}

#endif
