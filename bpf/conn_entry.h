/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Elements of the connection tables: found, read, and changed under their locks.
 *
 * The kernel uses the element of a deleted entry again at once: a pointer to it
 * may lead to another flow's entry at any later instruction. So an element has the
 * flow that it belongs to, and:
 *
 * 1. Whatever changes an element that is in the table holds its lock, and has
 *    compared the flow and found it not dead, or owns it (3). Two writes are unlocked:
 *    a) in_packets: a store. It may count a packet for a stranger, or lose one, and
 *       drop_entry may then spare or end an idle connection one packet too early or
 *       late.
 *    b) expires, on the fast path, by packets that do not change the state: a
 *       compare-and-swap with the value that was read with the flow (conn_prolong).
 *       If it fails, another packet was first. It can change a stranger only if that
 *       expires at the same nanosecond, as what was opened or prolonged in one tick
 *       of the coarse clock for one timeout does; then the stranger ends by the timeout
 *       of the packet's state instead of its own, until its next packet. It may come
 *       between the wheel's decision that a connection is over and its end: the packet
 *       was too late, as one behind the end. If the timer entry was moved meanwhile, a
 *       connection whose timeout is shortened ends later, as in conn.h's invariant 4.
 * 2. What was decided without the lock is decided again under it.
 * 3. Who sets CONN_DEAD owns the entry: it lets the template go, removes the entry
 *    and takes it from its server's count; no other program does. While it is dead, no
 *    entry of its flow can be inserted, so the one that is then deleted is this one. If the
 *    kernel refuses a deletion, the owner sets CONN_LEFT, by which the wheel becomes the
 *    owner: it removes the entry in one of its next ticks (removal.h). Until then the
 *    server counts it. What the wheel itself ends it owns from the beginning.
 * 4. Readers take no lock. They copy the fields, then the flags, then compare the
 *    flow. An element is dead before another entry is copied into it, and the copy
 *    writes the flow before the flags: a reader that found the flow and no CONN_DEAD
 *    has the fields of this flow's connection. That is so where the CPU keeps
 *    the order of loads, and that of stores (x86). Elsewhere, or if the element
 *    went to another flow and back to this one meanwhile, a packet may go to the
 *    other connection's server: one packet, as every change is made by rule 1.
 */
#ifndef IMBANG_CONN_ENTRY_H
#define IMBANG_CONN_ENTRY_H

#include "conn_state.h"
#include "element.h"
#include "flow.h"
#include "hook.h"
#include "maps.h"
#include "packet.h"
#include "proof.h"
#include "settings.h"
#include "told.h"
#include "wheel.h"

#define CONN4_FIELDS offsetof(struct conn4, expires)
#define CONN6_FIELDS offsetof(struct conn6, expires)

/* The element of a flow, and its key. Its fields may be another connection's at once:
 * see above. */
static __always_inline struct conn *conn_find_in(const struct flow *flow, union conn_key *key,
						 __u8 family)
{
	void *found;

	if (family == AF_INET6) {
		key->six = *flow;
		found = bpf_map_lookup_elem(&conns6, &key->six);
		return found ? found + CONN6_FIELDS : 0;
	}
	flow_to4(flow, &key->four);
	found = bpf_map_lookup_elem(&conns4, &key->four);
	return found ? found + CONN4_FIELDS : 0;
}

static __always_inline int conn_is_of(const struct conn *c, const union conn_key *key, __u8 family)
{
	const __u64 *a = (const void *)c - (family == AF_INET6 ? CONN6_FIELDS : CONN4_FIELDS);

	if (a[0] != key->word[0] || a[1] != key->word[1])
		return 0;
	return family != AF_INET6 ||
	       (a[2] == key->word[2] && a[3] == key->word[3] && a[4] == key->word[4]);
}

/* Under the lock: whether the element is of this flow, and alive. */
static __always_inline int conn_lives(const struct conn *c, const union conn_key *key, __u8 family)
{
	return !(c->flags & CONN_DEAD) && conn_is_of(c, key, family);
}

/* Port, state, flags, template, forward and in_packets: one load. */
#define CONN_WORD offsetof(struct conn, port)
_Static_assert(CONN_WORD % 8 == 0 && offsetof(struct conn, fwmark) == CONN_WORD + 8,
	       "what packets are forwarded by is a word");

/* Copies all that packets need: not the lock, nor what backups know. The flags are last. */
static __always_inline void conn_copy(const struct conn *c, struct conn *seen)
{
	seen->expires = c->expires;
	seen->due = c->due;
	seen->number = conn_number(c);
	seen->server = c->server;
	seen->controlled = c->controlled;
	seen->timeout = c->timeout;
	barrier();
	__builtin_memcpy((void *)seen + CONN_WORD, (const void *)c + CONN_WORD, 8);
}

/* Copies what an element says, in the order of rule 4; 0 if it is not this flow's, or
 * dead. */
static __always_inline int conn_read(const struct conn *c, const union conn_key *key,
				     struct conn *seen, __u8 family)
{
	conn_copy(c, seen);
	barrier();
	return !(seen->flags & CONN_DEAD) && conn_is_of(c, key, family);
}

/* The connection of a flow, and what it is; NULL if there is none that lives. Only
 * in_packets may be written by the pointer. */
static __always_inline struct conn *conn_look_in(const struct flow *flow, union conn_key *key,
						 struct conn *seen, __u8 family)
{
	struct conn *c = conn_find_in(flow, key, family);

	return c && conn_read(c, key, seen, family) ? c : 0;
}

static __noinline struct conn *conn_look(const struct flow *flow, struct conn *seen)
{
	union conn_key key;
	struct conn *c;

	if (flow->family == AF_INET6) {
		c = conn_find_in(flow, &key, AF_INET6);
		HOOK(CONN_FOUND);
		return c && conn_read(c, &key, seen, AF_INET6) ? c : 0;
	}
	c = conn_find_in(flow, &key, AF_INET);
	HOOK(CONN_FOUND);
	return c && conn_read(c, &key, seen, AF_INET) ? c : 0;
}

/* Whether a flow has an entry, which may be dead. */
static __noinline int conn_exists(const struct flow *flow)
{
	union conn_key key;

	return flow->family == AF_INET6 ? !!conn_find_in(flow, &key, AF_INET6)
					: !!conn_find_in(flow, &key, AF_INET);
}

/* Enters a connection: 0, or an error if the flow has an entry or there is no room. */
static __noinline long conn_put4(const struct flow *flow, const struct conn *c)
{
	struct conn4 value = {};

	flow_to4(flow, &value.flow);
	conn_copy(c, (void *)&value + CONN4_FIELDS);
	return map_update(conns4, &value.flow, &value, BPF_NOEXIST);
}

static __noinline long conn_put6(const struct flow *flow, const struct conn *c)
{
	struct conn6 value = {};

	value.flow = *flow;
	conn_copy(c, (void *)&value + CONN6_FIELDS);
	return map_update(conns6, &value.flow, &value, BPF_NOEXIST);
}

static __always_inline long conn_put(const struct flow *flow, const struct conn *c)
{
	return flow->family == AF_INET6 ? conn_put6(flow, c) : conn_put4(flow, c);
}

/* Deletes an entry: 0, or an error. Only for its owner: see rule 3. */
static __noinline long conn_forget(const struct flow *flow)
{
	union conn_key key;

	if (flow->family == AF_INET6) {
		key.six = *flow;
		return map_delete(conns6, &key.six);
	}
	flow_to4(flow, &key.four);
	return map_delete(conns4, &key.four);
}

/* What must not have changed, in addition to the server, for an entry to be killed. */
enum kill_condition {
	KILL_SAME_STATE = 0x1,
	KILL_UNHELD = 0x2, /* a template that controls no connection */
	KILL_UNREAL = 0x4, /* nor ever controlled one that was established */
	KILL_UNPROVEN = 0x8,
};

static __always_inline int conn_kill_in(const struct flow *flow, union conn_key *key,
					struct conn *seen, __u32 conditions, __u8 family)
{
	struct conn *c = conn_find_in(flow, key, family);
	int killed = 0;

	if (!c)
		return 0;
	HOOK(CONN_KILL);
	bpf_spin_lock(&c->lock);
	if (conn_lives(c, key, family) && c->server == seen->server &&
	    !(conditions & KILL_SAME_STATE && c->state != seen->state) &&
	    !(conditions & KILL_UNHELD && c->controlled) &&
	    !(conditions & KILL_UNREAL && c->flags & CONN_ASSURED) &&
	    !(conditions & KILL_UNPROVEN && !(c->flags & CONN_UNPROVEN))) {
		conn_copy(c, seen);
		c->flags = (c->flags & ~CONN_ADOPTED) | CONN_DEAD;
		killed = 1;
	}
	bpf_spin_unlock(&c->lock);
	return killed;
}

/* Marks an entry as dead: 1, and `seen` is what it was in the end; 0 if another CPU has
 * removed it, or it is not what was seen. */
static __noinline int conn_kill(const struct flow *flow, struct conn *seen, __u32 conditions)
{
	union conn_key key;

	return flow->family == AF_INET6 ? conn_kill_in(flow, &key, seen, conditions, AF_INET6)
					: conn_kill_in(flow, &key, seen, conditions, AF_INET);
}

/* Changes the state, and whether it counts as active: 1, -1, 0 if as before. Under the
 * connection's lock. */
static __always_inline __s32 conn_become(struct conn *c, __u8 state)
{
	int now = counts_active(state);

	if (state != c->state)
		told_unknown(c);
	c->state = state;
	if (now == !(c->flags & CONN_INACTIVE))
		return 0;
	c->flags ^= CONN_INACTIVE;
	return now ? 1 : -1;
}

/* What a packet does to a connection. */
struct conn_change {
	__u32 by;     /* the rules */
	__u32 server; /* that it has */
	__s32 active; /* how the server's count of active ones changes */
	__u8 was;     /* its state */
	__u8 state;   /* and after */
};

static __always_inline int conn_move_in(const struct flow *flow, union conn_key *key,
					const struct packet *p, struct conn_change *change,
					__u8 family)
{
	struct conn *c = conn_find_in(flow, key, family);
	int moved = 0;

	if (!c)
		return 0;
	HOOK(CONN_MOVE);
	bpf_spin_lock(&c->lock);
	if (conn_lives(c, key, family)) {
		change->was = c->state;
		change->state = next_state(change->was, p, change->by);
		change->server = c->server;
		change->active = conn_become(c, change->state);
		moved = 1;
	}
	bpf_spin_unlock(&c->lock);
	return moved;
}

/* Changes the state by a packet; 0 if the connection is gone. */
__noinline int conn_move(const struct flow *flow, const struct packet *p,
			 struct conn_change *change)
{
	union conn_key key;

	if (!flow || !p || !change)
		return 0;
	return flow->family == AF_INET6 ? conn_move_in(flow, &key, p, change, AF_INET6)
					: conn_move_in(flow, &key, p, change, AF_INET);
}

static __always_inline int conn_mark_in(const struct flow *flow, union conn_key *key, __u32 server,
					__u8 flag, __u8 family)
{
	struct conn *c = conn_find_in(flow, key, family);
	int marked = 0, proven = 0;

	if (!c)
		return 0;
	/* If it is a stranger's by now, there is no entry of the flow to be marked. */
	if (c->flags == flags_marked(c->flags, flag) && c->server == server)
		return 1;
	HOOK(CONN_MARK);
	bpf_spin_lock(&c->lock);
	if (conn_lives(c, key, family) && c->server == server) {
		proven = c->flags & flag & CONN_UNPROVEN;
		c->flags = flags_marked(c->flags, flag);
		marked = 1;
	}
	bpf_spin_unlock(&c->lock);
	if (proven)
		unproven_counted(server, -1);
	return marked;
}

/* Sets a flag of the entry that a flow has with this server, or clears CONN_UNPROVEN; 0 if it
 * has none. */
static __noinline int conn_mark(const struct flow *flow, __u32 server, __u8 flag)
{
	union conn_key key;

	return flow->family == AF_INET6 ? conn_mark_in(flow, &key, server, flag, AF_INET6)
					: conn_mark_in(flow, &key, server, flag, AF_INET);
}

static __always_inline int conn_disable_in(const struct flow *flow, union conn_key *key,
					   __u32 server, __be16 port, __u8 family)
{
	struct conn *c = conn_find_in(flow, key, family);
	int done = 0;

	if (!c)
		return 0;
	bpf_spin_lock(&c->lock);
	if (conn_lives(c, key, family) && c->server == server) {
		c->port = port;
		done = 1;
	}
	bpf_spin_unlock(&c->lock);
	return done;
}

/* Gives a template an invalid port, under its own key; 0 if it is gone. */
static __noinline int conn_disable(const struct flow *flow, __u32 server, __be16 port)
{
	union conn_key key;

	return flow->family == AF_INET6 ? conn_disable_in(flow, &key, server, port, AF_INET6)
					: conn_disable_in(flow, &key, server, port, AF_INET);
}

/* Whether its timer entry is early enough for an end at that time [ns]. */
static __always_inline int timer_entry_before(const struct conn *c, __u64 expires, __u64 now)
{
	return (__s32)(tick_near(c->due, now) - tick_after(expires)) <= 1;
}

/* Lets the connection that was read end at `expires` instead of at `was` [ns]: without
 * its lock, see rule 1b. It has a timer entry that is early enough. */
static __always_inline void conn_prolong(struct conn *c, __u64 was, __u64 expires)
{
	__sync_val_compare_and_swap(&c->expires, was, expires);
}

static __always_inline int conn_delay_in(const struct flow *flow, union conn_key *key,
					 __u64 expires, __u32 state, __u8 family)
{
	struct conn *c = conn_find_in(flow, key, family);
	__u64 now = now_coarse_ns();
	int done = 0;

	if (!c)
		return 0;
	HOOK(CONN_EXTEND);
	bpf_spin_lock(&c->lock);
	if (conn_lives(c, key, family)) {
		/* Who gave it another state says when that ends. */
		done = c->state != state;
		if (!done && timer_entry_before(c, expires, now)) {
			c->expires = expires;
			done = 1;
		}
	}
	bpf_spin_unlock(&c->lock);
	return done;
}

/* Writes when a flow's connection ends that is in a state [ns]; 0 if it needs an earlier
 * timer entry for that, or is gone. */
static __noinline int conn_delay(const struct flow *flow, __u64 expires, __u32 state)
{
	union conn_key key;

	return flow->family == AF_INET6 ? conn_delay_in(flow, &key, expires, state, AF_INET6)
					: conn_delay_in(flow, &key, expires, state, AF_INET);
}

/* What tells living entries, dead ones, and those of the wheel. */
#define CONN_OWNED (CONN_DEAD | CONN_LEFT)

/* What an entry has of it. The bit of CONN_LEFT is CONN_ADOPTED while the entry lives. */
static __always_inline __u32 conn_owned(const struct conn *c)
{
	return c->flags & CONN_DEAD ? c->flags & CONN_OWNED : 0;
}

/* A timer entry for a connection. */
struct timer_change {
	__u64 expires; /* when the connection ends; 0: as before [ns] */
	__u32 tick;
	__u32 number;  /* 0: it keeps its own */
	__u32 instead; /* of this one; 0: of any */
	__u32 state;   /* if `expires` is given: that it is for */
	__u32 owned;   /* what it has of CONN_OWNED; a dead one is left to the wheel */
	__u32 pad;
};

static __always_inline int conn_name_in(const struct flow *flow, union conn_key *key,
					const struct timer_change *to, __u8 family)
{
	struct conn *c = conn_find_in(flow, key, family);
	int named = 0;

	if (!c)
		return 0;
	HOOK(CONN_TICK);
	bpf_spin_lock(&c->lock);
	if (conn_is_of(c, key, family) && conn_owned(c) == to->owned &&
	    (!to->instead || conn_number(c) == to->instead) &&
	    (!to->expires || c->state == to->state)) {
		if (to->number) {
			c->due = to->tick;
			conn_set_number(c, to->number);
		}
		if (to->expires)
			c->expires = to->expires;
		if (to->owned)
			c->flags |= CONN_LEFT;
		named = 1;
	}
	bpf_spin_unlock(&c->lock);
	return named;
}

/* Makes a timer entry the one that a connection keeps; 0 if the connection is gone. */
static __noinline int conn_name(const struct flow *flow, const struct timer_change *to)
{
	union conn_key key;

	return flow->family == AF_INET6 ? conn_name_in(flow, &key, to, AF_INET6)
					: conn_name_in(flow, &key, to, AF_INET);
}

/* What becomes of a connection whose timer entry is due. */
enum due {
	DUE_NOTHING, /* the entry is not kept: there is no connection, or it has another */
	DUE_KEPT,    /* it is to be entered again */
	DUE_OVER,    /* the connection is dead, and the wheel's */
};

/* A template whose connections are not over is looked at again after. */
#define TEMPLATE_LINGER (60 * NSEC_PER_SEC)

/* Whether a template that was due gets another time for its connections. */
static __always_inline int template_lingers(const struct flow *flow, const struct conn *seen,
					    __u64 now)
{
	return flow->template && seen->expires == now + TEMPLATE_LINGER;
}

static __always_inline enum due conn_due_in(const struct flow *flow, union conn_key *key,
					    __u32 number, __u64 now, struct conn *seen, __u8 family)
{
	struct conn *c = conn_find_in(flow, key, family);
	enum due due = DUE_NOTHING;
	struct settings *set = get_settings();

	if (!c)
		return due;
	HOOK(CONN_DUE);
	bpf_spin_lock(&c->lock);
	if (conn_is_of(c, key, family) && conn_number(c) == number) {
		__u64 until = c->flags & CONN_DEAD ? now : c->expires;

		if (until <= now && flow->template && c->controlled && !(c->flags & CONN_DEAD)) {
			c->expires = until = now + TEMPLATE_LINGER;
			/* From then on, as in Linux, it is the template's own. */
			c->timeout = TEMPLATE_LINGER / NSEC_PER_SEC;
			/* That is no packet: a pair's other director knows of a later one. */
			told_note(c, told_replica_end(c->expires), told_state(c), 1);
		}
		if (until > now)
			told_lapse(c, now, told_timeout(flow, c, set));
		/* Another CPU is about to remove it, or to leave it to the wheel: as the
		 * element may be a stranger's next, it is not written. */
		if (until > now || (c->flags & CONN_OWNED) == CONN_DEAD)
			due = DUE_KEPT;
		else
			due = DUE_OVER;
		if ((c->flags & CONN_OWNED) != CONN_DEAD)
			c->due = wheel_tick_for(until, now);
		conn_copy(c, seen);
		if (due == DUE_OVER)
			c->flags |= CONN_OWNED;
	}
	bpf_spin_unlock(&c->lock);
	return due;
}

/* The wheel has come to a timer entry of a flow. */
static __noinline enum due conn_due(const struct flow *flow, __u32 number, __u64 now,
				    struct conn *seen)
{
	union conn_key key;

	return flow->family == AF_INET6 ? conn_due_in(flow, &key, number, now, seen, AF_INET6)
					: conn_due_in(flow, &key, number, now, seen, AF_INET);
}

static __always_inline int conn_hold_in(const struct flow *flow, union conn_key *key, __u32 *server,
					__s32 n, __u8 family)
{
	struct conn *c = conn_find_in(flow, key, family);
	__u32 wanted = *server;
	int held = 0;

	if (!c)
		return 0;
	HOOK(CONN_HOLD);
	bpf_spin_lock(&c->lock);
	if (conn_lives(c, key, family) && (wanted == NO_SERVER || c->server == wanted) &&
	    (n > 0 || c->controlled >= -n)) {
		c->controlled += n;
		wanted = c->server;
		held = 1;
	}
	bpf_spin_unlock(&c->lock);
	*server = wanted;
	return held;
}

/* Has a template control n more connections, if it lives and leads to this server
 * (NO_SERVER: to any, which is told). */
static __noinline int conn_hold(const struct flow *flow, __u32 *server, __s32 n)
{
	union conn_key key;

	return flow->family == AF_INET6 ? conn_hold_in(flow, &key, server, n, AF_INET6)
					: conn_hold_in(flow, &key, server, n, AF_INET);
}

#endif
