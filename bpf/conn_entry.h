/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Connections and templates as entries of the connection table (table/entry.h): found, read, and
 * changed under the claims of their buckets.
 *
 * 1. Whatever changes an entry that is in the table holds the claim of its bucket, and has found it
 *    there, or owns it (3). Two writes are without a claim:
 *    a) in_packets: a store. It may count a packet for a stranger, or lose one, and
 *       drop_entry may then spare or end an idle connection one packet too early or
 *       late.
 *    b) expires, by packets that do not change the state: a compare-and-swap with the value that
 *       was read with the flow (conn_prolong). If it fails, another packet was first, or the
 *       connection has ended.
 * 2. What was decided without the claim is decided again under it.
 * 3. Who sets CONN_DEAD, and DEAD_TIME with it, owns the entry: it lets the template go, removes
 *    the entry and takes it from its server's count; no other program does. While it is dead, no
 *    entry of its flow can be entered. So an entry begins dead, too: it is this CPU's until all
 *    that it says is written. If its bucket cannot be claimed, or the kernel refuses to
 *    delete a template's call, the owner sets CONN_LEFT, by which the sweep becomes the owner: it
 *    removes the entry when it comes by (removal.h). Until then the server counts it.
 * 4. An entry whose time is over counts as absent, though it is in the table until the sweep or
 *    a packet of its flow ends it. A template lives on while it controls connections.
 */
#ifndef IMBANG_CONN_ENTRY_H
#define IMBANG_CONN_ENTRY_H

#include "clock.h"
#include "conn_state.h"
#include "flow.h"
#include "hook.h"
#include "maps.h"
#include "packet.h"
#include "proof.h"
#include "settings.h"
#include "table/reshape.h"
#include "told.h"

/* Port, state, flags, template, forward and in_packets: one load. */
#define CONN_WORD offsetof(struct conn, port)
_Static_assert(CONN_WORD == 8 && offsetof(struct conn, server) == CONN_WORD + 8,
	       "what packets are forwarded by is a word");
#define CONN_WORD_DEAD ((__u64)CONN_DEAD << 8 * (offsetof(struct conn, flags) - CONN_WORD))

/* Copies what the fast path needs: its frame has no room for more. */
static __always_inline void conn_copy_part(struct conn *c, struct conn *seen)
{
	seen->expires = entry_expires(c);
	barrier();
	*(__u64 *)((void *)seen + CONN_WORD) = *(volatile __u64 *)((void *)c + CONN_WORD);
	barrier();
	seen->server = c->server;
	seen->index = c->index;
}

/* Copies all that packets need: not what backups know. */
static __always_inline void conn_copy(struct conn *c, struct conn *seen)
{
	conn_copy_part(c, seen);
	seen->controlled = c->controlled;
	seen->timeout = c->timeout;
}

/* Whether an entry's time is over [ns]. */
static __always_inline int conn_lapsed(const struct conn *c, __u64 now)
{
	return c->expires <= now && !(c->state == CONN_TEMPLATE && c->controlled);
}

/* Whether what was copied is of one entry, of this flow, that is not dead (entry.h, rule 5). */
static __always_inline int conn_proved(struct conn *c, const union conn_key *key,
				       const struct conn *seen, __u8 family)
{
	barrier();
	return entry_is(c, key->word, family) && !(seen->flags & CONN_DEAD) &&
	       !((seen->expires ^ entry_expires(c)) & INCARNATION);
}

/* Copies what an entry says; 0 if it does not live or is not this flow's. */
static __always_inline int conn_read(struct conn *c, const union conn_key *key, struct conn *seen,
				     __u8 family)
{
	conn_copy(c, seen);
	return conn_proved(c, key, seen, family) && !conn_lapsed(seen, time_coarse());
}

static __always_inline void key_of(const struct flow *flow, union conn_key *key, __u8 family)
{
	if (family == AF_INET6)
		key->six = *flow;
	else
		flow_to4(flow, &key->four);
}

/* The connection of a key, and what it is in part; NULL if there is none that lives. Only
 * in_packets and expires may be written by the pointer. */
static __always_inline struct conn *conn_look_at(const union conn_key *key, struct conn *seen,
						 __u8 family)
{
	struct conn *c = entry_find(key, family);

	if (!c)
		return 0;
	conn_copy_part(c, seen);
	return conn_proved(c, key, seen, family) && seen->expires > time_coarse() ? c : 0;
}

/* Likewise, of a flow, which becomes the key. */
static __always_inline struct conn *conn_look_in(const struct flow *flow, union conn_key *key,
						 struct conn *seen, __u8 family)
{
	key_of(flow, key, family);
	return conn_look_at(key, seen, family);
}

/* Likewise, of any family and with a search that is open: 1, or 0. It takes less of the stack. */
static __always_inline int conn_look_by(struct search *s, const struct flow *flow,
					struct conn *seen)
{
	struct conn *c;
	__u32 index;

	search_for(s, flow);
	s->step = SEARCH_BEGIN;
	s->found = 0;
	index = search(s);
	HOOK(CONN_FOUND);
	if (!index)
		return 0;
	if (s->six) {
		c = line_of(index, 2);
		return c && conn_read(c, &s->key, seen, AF_INET6);
	}
	c = line_of(index, 1);
	return c && conn_read(c, &s->key, seen, AF_INET);
}

/* Whether a flow surely has no entry. */
__noinline int conn_absent(const struct flow *flow)
{
	struct flow4 four;

	if (!flow || flow->family == AF_INET6)
		return flow && hash_lacks(hash6(flow));
	flow_to4(flow, &four);
	return hash_lacks(hash4(&four));
}

/* Global, as it has many callers: the verifier walks it once. */
__noinline int conn_look(const struct flow *flow, struct conn *seen)
{
	struct search *s = search_open();
	int found = 0;

	if (s && flow && seen)
		found = conn_look_by(s, flow, seen);
	search_close();
	return found;
}

/* More than another CPU takes from when it has reserved an entry until the connection lives. */
#define SETTLE_TRIES 64

struct settling {
	const struct flow *flow;
	struct conn seen;
	int lives;
};

static long settle_look(__u32 i, struct settling *s)
{
	s->seen.index = 0;
	s->lives = conn_look(s->flow, &s->seen);
	return s->lives || !s->seen.index;
}

/* Waits until a connection that another CPU opens now is there, or given up: 1 if the flow has no
 * entry then. */
__noinline int conn_settled_away(const struct flow *flow)
{
	struct settling s = { .flow = flow };

	if (flow)
		bpf_loop(TRIES(SETTLE_TRIES), settle_look, &s, 0);
	return !s.lives && !s.seen.index;
}

/* Sets how many packets came from its client (1a). */
static __always_inline void conn_set_packets(const struct conn *seen, __u16 packets)
{
	struct conn *c = entry_far(seen->index);

	if (c)
		c->in_packets = packets;
}

/* How many lines the table has, and the index of one of them; 0: it is none. */
static __always_inline __u32 entries_at(void)
{
	return blocks_used() * BLOCK_ENTRIES;
}

static __always_inline __u32 entry_at(__u32 n)
{
	return block_at(n / BLOCK_ENTRIES) * INDEX_LINES + 1 + n % BLOCK_ENTRIES;
}

enum entry_seen { ENTRY_NONE, ENTRY_LIVES, ENTRY_LAPSED };

/* What the connection or template of an index is, and its flow. */
__noinline enum entry_seen entry_see(__u32 index, struct flow *flow, struct conn *seen)
{
	if (!flow || !seen || !entry_flow(index, flow) || flow->template == FLOW_REPLIES)
		return ENTRY_NONE;
	if (conn_look(flow, seen))
		return seen->index == index ? ENTRY_LIVES : ENTRY_NONE;
	/* One without a time is just being published. */
	return seen->index == index && !(seen->flags & CONN_DEAD) && seen->expires >= 2 * DEAD_TIME
		       ? ENTRY_LAPSED
		       : ENTRY_NONE;
}

/* Likewise, as it lies there, which costs one look-up: of no use but to choose one. */
__noinline enum entry_seen entry_glance(__u32 index, struct flow *flow, struct conn *seen)
{
	void *block = block_of((index & INDEX_MASK) / INDEX_LINES);
	struct conn *c = block_line(block, index % INDEX_LINES, 1);
	const struct block_head *head = block_line(block, 0, 1);

	/* Every second line of a block of IPv6 is half an entry. */
	if (!c || !head ||
	    !((free_lines(head->kind) & ~block_free(head)) >> index % INDEX_LINES & 1))
		return ENTRY_NONE;
	if (!flow || !seen || !block_flow(block, index, flow) || flow->template == FLOW_REPLIES)
		return ENTRY_NONE;
	conn_copy(c, seen);
	if (seen->flags & CONN_DEAD || seen->expires < 2 * DEAD_TIME)
		return ENTRY_NONE;
	return conn_lapsed(seen, time_coarse()) ? ENTRY_LAPSED : ENTRY_LIVES;
}

static __always_inline int entry_look(__u32 index, struct flow *flow, struct conn *seen)
{
	return entry_see(index, flow, seen) == ENTRY_LIVES;
}

/* Whether a flow has an entry, which may be dead. */
static __noinline int conn_exists(const struct flow *flow)
{
	__u32 hash;

	return !!entry_search(flow, &hash);
}

/* The entry of a flow, dead or alive, with its bucket claimed; NULL if there is none, and no
 * claim. bucket_release ends that. */
static __always_inline struct conn *conn_claim(const struct flow *flow, __u32 *bucket)
{
	struct search *s = search_open();
	__u32 index;

	if (!s)
		return 0;
	search_for(s, flow);
	index = search_claim(s);
	*bucket = s->bucket;
	search_close();
	return index ? line_of(index, 1) : 0;
}

static __always_inline int conn_lives(const struct conn *c)
{
	return !(*(volatile __u8 *)&c->flags & CONN_DEAD);
}

/* Empties what an entry says: it is that of no server, and dead. */
static __always_inline void entry_blank(struct conn *c)
{
	*(volatile __u64 *)((void *)c + CONN_WORD) = CONN_WORD_DEAD;
	c->server = NO_SERVER;
	c->controlled = 0;
	c->timeout = 0;
	c->told_end = 0;
	c->told = 0;
	c->replies = 0;
}

/* Begins an entry of the flow that is searched for, in a line that was taken. */
static __always_inline void entry_begin(struct search *s, struct conn *c, __u32 index)
{
	struct conn6 *six = s->six ? line_of(index, 2) : 0;

	entry_renew(c);
	if (six)
		six->flow = s->key.six;
	else
		((struct conn4 *)c)->flow = s->key.four;
	entry_blank(c);
	c->index = index;
	c->hash = s->hash;
	c->next = 0;
}

/* Enters an entry of a flow that is dead, and this CPU's (3): 0, and its index; or an error:
 * -EEXIST if the flow has an entry, -E2BIG if there is no room at hand (room_prepare). Either
 * conn_publish makes a connection of it, or conn_forget removes it. */
__noinline int conn_reserve(const struct flow *flow, __u32 *index)
{
	struct search *s = search_open();
	struct conn *c;
	__u32 line;
	int rc;

	if (!flow || !index || !s)
		return -EINVAL;
	line = room_take(entry_kind(flow->family));
	c = line ? line_of(line, 1) : 0;
	if (!c) {
		search_close();
		return -E2BIG;
	}
	search_for(s, flow);
	entry_begin(s, c, line);
	rc = entry_enter(s, c, line, DEAD_TIME);
	search_close();
	if (rc)
		room_give(line);
	else
		*index = line;
	return rc == -ENOMEM ? -E2BIG : rc;
}

/* Makes another incarnation of a dead entry that is this CPU's, of the same flow. */
static __always_inline void conn_reuse(struct conn *c)
{
	*(volatile __u64 *)&c->expires = expires_as(DEAD_TIME, entry_expires(c) + 1);
	barrier();
	entry_blank(c);
}

/* Makes a connection or template of a dead entry that is this CPU's; its `expires` gets the entry's
 * incarnation. Readers take it for dead until its last word is written. */
__noinline int conn_publish(struct conn *fresh)
{
	struct conn *c = fresh ? line_of(fresh->index, 1) : 0;

	if (!c)
		return 0;
	c->server = fresh->server;
	c->controlled = fresh->controlled;
	c->timeout = fresh->timeout;
	c->replies = fresh->replies;
	fresh->expires = expires_as(fresh->expires, entry_expires(c));
	barrier();
	*(volatile __u64 *)&c->expires = fresh->expires;
	barrier();
	*(volatile __u64 *)((void *)c + CONN_WORD) = *(__u64 *)((void *)fresh + CONN_WORD);
	return 0;
}

/* Removes an entry of its owner (3) from the table: 0, or an error. */
static __always_inline int conn_forget(const struct conn *c)
{
	return entry_take_out(c->index, c->expires);
}

/* What must not have changed, in addition to the server, for an entry to be killed. */
enum kill_condition {
	KILL_SAME_STATE = 0x1,
	KILL_UNHELD = 0x2, /* a template that controls no connection */
	KILL_UNREAL = 0x4, /* nor ever controlled one that was established */
	KILL_UNPROVEN = 0x8,
};

/* Marks an entry as dead: 1, and `seen` is what it was in the end; 0 if another CPU has
 * removed it, or it is not what was seen. */
__noinline int conn_kill(const struct flow *flow, struct conn *seen, __u32 conditions)
{
	struct conn *c;
	int killed = 0;
	__u32 claim;

	if (!flow || !seen)
		return 0;
	HOOK(CONN_KILL);
	c = conn_claim(flow, &claim);
	if (!c)
		return 0;
	if (conn_lives(c) && c->server == seen->server &&
	    !(conditions & KILL_SAME_STATE && c->state != seen->state) &&
	    !(conditions & KILL_UNHELD && c->controlled) &&
	    !(conditions & KILL_UNREAL && c->flags & CONN_ASSURED) &&
	    !(conditions & KILL_UNPROVEN && !(c->flags & CONN_UNPROVEN))) {
		conn_copy(c, seen);
		c->flags = (c->flags & ~CONN_ADOPTED) | CONN_DEAD;
		entry_set_end(c, DEAD_TIME);
		killed = 1;
	}
	bucket_release(claim);
	return killed;
}

/* Leaves a dead entry to the sweep. */
__noinline int conn_leave(const struct flow *flow)
{
	__u32 claim;
	struct conn *c = flow ? conn_claim(flow, &claim) : 0;

	if (!c)
		return 0;
	if (!conn_lives(c))
		c->flags |= CONN_LEFT;
	bucket_release(claim);
	return 0;
}

/* Changes the state, and whether it counts as active: 1, -1, 0 if as before. Under the claim. */
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

/* Changes the state by a packet, and when the connection ends; 0 if it is gone. */
__noinline int conn_move(const struct flow *flow, const struct packet *p,
			 struct conn_change *change)
{
	struct settings *set = get_settings();
	struct conn *c;
	__u32 claim;

	if (!flow || !p || !change)
		return 0;
	HOOK(CONN_MOVE);
	c = conn_claim(flow, &claim);
	if (!c)
		return 0;
	if (!conn_lives(c)) {
		bucket_release(claim);
		return 0;
	}
	change->was = c->state;
	change->state = next_state(change->was, p, change->by);
	change->server = c->server;
	change->active = conn_become(c, change->state);
	entry_set_end(c, time_coarse() + conn_timeout(change->server, change->state, set));
	bucket_release(claim);
	return 1;
}

/* Sets a flag of the entry that a flow has with this server, or clears CONN_UNPROVEN; 0 if it
 * has none. */
__noinline int conn_mark(const struct flow *flow, __u32 server, __u8 flag)
{
	int marked = 0, proven = 0;
	struct conn *c;
	__u32 claim;

	if (!flow)
		return 0;
	HOOK(CONN_MARK);
	c = conn_claim(flow, &claim);
	if (!c)
		return 0;
	if (conn_lives(c) && c->server == server) {
		proven = c->flags & flag & CONN_UNPROVEN;
		c->flags = flags_marked(c->flags, flag);
		marked = 1;
	}
	bucket_release(claim);
	if (proven)
		unproven_counted(server, -1);
	return marked;
}

/* Gives a template an invalid port, under its own key; 0 if it is gone. */
static __noinline int conn_disable(const struct flow *flow, __u32 server, __be16 port)
{
	__u32 claim;
	struct conn *c = conn_claim(flow, &claim);
	int done = 0;

	if (!c)
		return 0;
	if (conn_lives(c) && c->server == server) {
		c->port = port;
		done = 1;
	}
	bucket_release(claim);
	return done;
}

/* Lets the connection that was read end at `expires` instead of at `was` [ns]: without a claim,
 * see rule 1b. */
static __always_inline void conn_prolong(struct conn *c, __u64 was, __u64 expires)
{
	__sync_val_compare_and_swap(&c->expires, was, expires_as(expires, was));
}

/* A template whose connections are not over is looked at again after. */
#define TEMPLATE_LINGER (60 * NSEC_PER_SEC)

/* Has a template control n more connections, if it lives and leads to this server
 * (NO_SERVER: to any, which is told). One whose time is over takes no new connection, but all those
 * of a template that is set aside. */
__noinline int conn_hold(const struct flow *flow, __u32 *server, __s32 n)
{
	struct conn *c;
	__u32 claim;
	int held = 0;

	if (!flow || !server)
		return 0;
	HOOK(CONN_HOLD);
	c = conn_claim(flow, &claim);
	if (!c)
		return 0;
	if (conn_lives(c) && (*server == NO_SERVER || c->server == *server) &&
	    (n > 0 || c->controlled >= -n) && !(n == 1 && conn_lapsed(c, time_coarse()))) {
		if (n > 1 && conn_lapsed(c, time_coarse()))
			entry_set_end(c, time_coarse() + TEMPLATE_LINGER);
		c->controlled += n;
		*server = c->server;
		held = 1;
	}
	bucket_release(claim);
	return held;
}

/* What becomes of an entry that the sweep has come to. */
enum due {
	DUE_NOTHING,
	DUE_KEPT, /* it has got another time */
	DUE_OVER, /* it is dead, and the sweep's */
};

/* The sweep has come to all connections that end with their template after. */
#define SWEEP_PASS_LONGEST NSEC_PER_SEC

/* Ends an entry whose bucket is claimed if its time is over, or it was left. */
static __always_inline enum due conn_end_due(struct conn *c, __u64 now, struct conn *seen)
{
	__u8 flags = *(volatile __u8 *)&c->flags;
	__u64 was;

	barrier(); /* one that is published now has its time by then */
	was = entry_expires(c);
	if (was < DEAD_TIME || was > now)
		return DUE_NOTHING;
	conn_copy(c, seen);
	if (flags & CONN_DEAD) {
		/* Else it is another CPU's, which goes on with it, or leaves it to the sweep. */
		if (!(flags & CONN_LEFT))
			return DUE_NOTHING;
		c->flags &= ~CONN_LEFT;
		return DUE_OVER;
	}
	if (c->state == CONN_TEMPLATE && c->controlled) {
		if (now - was < SWEEP_PASS_LONGEST)
			return DUE_NOTHING;
		entry_set_end(c, now - SWEEP_PASS_LONGEST + TEMPLATE_LINGER);
		/* From then on, as in Linux, it is the template's own. */
		c->timeout = TEMPLATE_LINGER / NSEC_PER_SEC;
		/* That is no packet: a pair's other director knows of a later one. */
		told_note(c, told_replica_end(c->expires), told_state(c), 1);
		return DUE_KEPT;
	}
	if (__sync_val_compare_and_swap(&c->expires, was, expires_as(DEAD_TIME, was)) != was)
		return DUE_NOTHING;
	c->flags = (c->flags & ~CONN_ADOPTED) | CONN_DEAD;
	return DUE_OVER;
}

/* Likewise, of the entry of a flow. */
static __noinline enum due conn_due(const struct flow *flow, __u64 now, struct conn *seen)
{
	struct conn *c;
	enum due due;
	__u32 claim;

	HOOK(CONN_DUE);
	c = conn_claim(flow, &claim);
	if (!c)
		return DUE_NOTHING;
	due = conn_end_due(c, now, seen);
	bucket_release(claim);
	return due;
}

#endif
