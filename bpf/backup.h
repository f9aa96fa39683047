/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What another director tells of entries that are here already; those that are not are
 * imported. Of a master of Linux (RECORD_TOLD) as ip_vs_proc_conn does: no template controls
 * the connections of such a backup, a template lives by what is told of it. A director of
 * this kind (RECORD_REPLICA, RECORD_ENDED) tells also of ends and of what controls a
 * connection, in the order in which it happened.
 *
 * Of a pair packets may come to both directors (RECORD_SHARED). An entry that has another
 * server here stays, unless no packet came here or a later one came there: if they came at
 * about the same time, each director keeps its own. An entry of the same server does not go back
 * to an earlier state then. A replica there (RECORD_COPY) says nothing new of an entry that is
 * here.
 */
#ifndef IMBANG_BACKUP_H
#define IMBANG_BACKUP_H

#include "conn_life.h"
#include "import.h"
#include "persist.h"
#include "record.h"
#include "sync.h"

/* How far a connection is. */
enum backup_stage {
	STAGE_OPENING, /* or it has no stages */
	STAGE_ESTABLISHED,
	STAGE_ENDING,
	STAGE_OVER,
};

#define ENDING_STATES                                                                    \
	(STATE_BIT(TCP_FIN_WAIT) | STATE_BIT(TCP_CLOSE_WAIT) | STATE_BIT(TCP_LAST_ACK) | \
	 STATE_BIT(SCTP_SHUTDOWN_SENT) | STATE_BIT(SCTP_SHUTDOWN_RECEIVED) |             \
	 STATE_BIT(SCTP_SHUTDOWN_ACK_SENT))
#define OVER_STATES                                                                   \
	(STATE_BIT(TCP_TIME_WAIT) | STATE_BIT(TCP_CLOSE) | STATE_BIT(SCTP_REJECTED) | \
	 STATE_BIT(SCTP_CLOSED))

static __always_inline enum backup_stage backup_stage(__u8 state)
{
	__u32 bit = STATE_BIT(state & 31);

	if (bit & (STATE_BIT(TCP_ESTABLISHED) | STATE_BIT(SCTP_ESTABLISHED)))
		return STAGE_ESTABLISHED;
	if (bit & ENDING_STATES)
		return STAGE_ENDING;
	return bit & OVER_STATES ? STAGE_OVER : STAGE_OPENING;
}

/* Whether a state is an earlier one of the same connection. After one that is over another
 * connection opens. */
static __always_inline int backup_earlier(__u8 told, __u8 here)
{
	enum backup_stage was = backup_stage(told), is = backup_stage(here);

	return was < is && !(was == STAGE_OPENING && is == STAGE_OVER);
}

/* Under the claim: what a record says is what is known elsewhere. */
static __always_inline void backup_note(struct conn *c, const struct flow *flow,
					const struct conn_record *r)
{
	__u32 state = flow->template ? !!(r->flags & CONN_ASSURED) : told_code(r->state);

	if (record_noted(r))
		told_note(c, told_replica_end(r->expires), state, 1);
	else
		told_note(c, 0, state, 0);
}

/* Changes the entry of a flow to what a record says, if it is still what was seen; 0 if it
 * is not. *active: how its server's count of active connections changes. */
static __noinline int backup_change(const struct flow *flow, const struct conn_record *r,
				    const struct conn *seen, __s32 *active)
{
	__u8 shown = record_unproven(r) ? 0 : CONN_UNPROVEN;
	int done = 0;
	__u32 claim;
	struct conn *c = conn_claim(flow, &claim);

	*active = 0;
	if (!c)
		return 0;
	if (conn_lives(c) && c->server == seen->server) {
		c->in_packets = r->in_packets;
		if (flow->template) {
			/* There it may be that of a template that lives on for its connections. */
			if (r->kind != RECORD_SHARED || r->netmask > c->timeout)
				c->timeout = r->netmask;
			c->flags = (c->flags & ~CONN_ASSURED) | (r->flags & CONN_ASSURED);
		} else {
			*active = conn_become(c, r->state);
			c->flags |= r->flags & CONN_REPLIED;
		}
		shown &= c->flags;
		c->flags &= ~shown;
		entry_set_end(c, now_coarse_ns() + record_timeout(r));
		backup_note(c, flow, r);
		done = 1;
	}
	bucket_release(claim);
	if (done && shown)
		unproven_counted(seen->server, -1);
	return done;
}

/* Whether the entry of a flow is as another director told: packets would have moved its
 * end. */
static __noinline int backup_untouched(const struct flow *flow)
{
	struct conn seen = {}, *c = conn_look(flow, &seen) ? entry_far(seen.index) : 0;

	return c && told_untouched(c);
}

/* How much later no packet came for an entry, or one at a time that is not known: less than any
 * time [ns]. */
#define BACKUP_NEVER (-(1LL << 62))

/* How much later the last packet came for an entry here than the last one that a record of
 * another director knows of [ns]. */
static __always_inline __s64 backup_ahead(const struct flow *flow, const struct conn *seen,
					  const struct conn_record *r)
{
	struct settings *set = get_settings();
	__u64 timeout, last;

	if (backup_untouched(flow))
		return BACKUP_NEVER;
	timeout = told_timeout(flow, seen, set);
	/* Its end is not a timeout after a packet, as when timeouts were shortened since. */
	if (r->kind == RECORD_SHARED &&
	    (__s64)(seen->expires - timeout - now_coarse_ns()) > (__s64)EXPIRY_SLACK)
		return BACKUP_NEVER;
	last = now_coarse_ns() - r->idle * (NSEC_PER_SEC / 1000);
	return seen->expires - timeout - last;
}

/* Whether packets came for an entry here after the last one that a record of another
 * director knows of: its copy is the old one then. If a packet comes just now, it comes to
 * the end of its connection. */
static __always_inline int backup_in_use(const struct flow *flow, const struct conn *seen,
					 const struct conn_record *r)
{
	return backup_ahead(flow, seen, r) > (__s64)EXPIRY_SLACK;
}

/* Whether an entry stays as it is, though a director of a pair told of it: packets came here later,
 * or at about the same time, and the record is of an earlier state. It was sent before that
 * director knew of them, as while addresses move. */
static __always_inline int backup_stays(const struct flow *flow, const struct conn *seen,
					const struct conn_record *r)
{
	__s64 ahead = backup_ahead(flow, seen, r);

	return ahead > (__s64)EXPIRY_SLACK ||
	       (ahead > -(__s64)EXPIRY_SLACK && backup_earlier(r->state, seen->state));
}

static __always_inline void backup_update(const struct flow *flow, const struct conn_record *r,
					  const struct conn *seen)
{
	__s32 active = 0;

	if (!backup_change(flow, r, seen, &active))
		return;
	if (active)
		conn_counted(seen->server, active);
	if (flow->template || seen->state == r->state)
		return;
	handshake_follow(handshake_open(seen->state, seen->flags, seen->forward),
			 record_unproven(r) &&
				 handshake_open(r->state, seen->flags, seen->forward));
	follow_tell(flow, 0, FOLLOW_STATE, seen->state);
}

/* The entry has another server than a record. A connection is replaced, unless a master of
 * Linux tells of an earlier one, whose order is not known. A template of Linux keeps its
 * server; a replica's is set aside, as it was there. */
static __always_inline enum record_result backup_replace(const struct flow *key,
							 const struct conn_record *r,
							 struct conn *seen)
{
	if (!key->template) {
		if (r->kind == RECORD_TOLD && !counts_active(r->state))
			return RECORD_OUTDATED;
		if (conn_kill(key, seen, 0))
			conn_remove(key, seen);
		return RECORD_NONE;
	}
	if (r->kind == RECORD_TOLD) {
		backup_update(key, r, seen);
		return RECORD_UPDATED;
	}
	if (is_call(key))
		call_invalidate(key, seen->server);
	else
		template_invalidate(key, seen);
	return RECORD_NONE;
}

static __always_inline enum record_result backup_end(const struct flow *key,
						     const struct conn_record *r, struct conn *seen)
{
	if (seen->server != r->server || backup_in_use(key, seen, r) ||
	    !conn_kill(key, seen, key->template ? KILL_UNHELD : 0))
		return RECORD_KEPT;
	conn_remove(key, seen);
	return RECORD_UPDATED;
}

/* The key of a record's entry; 0 if it is a template of a call that has none. */
static __always_inline int record_key(const struct conn_record *r, const struct call *call,
				      struct flow *key)
{
	__u32 *number;

	*key = r->flow;
	if (r->template != TEMPLATE_CALL || !key->template)
		return 1;
	number = bpf_map_lookup_elem(&calls, call);
	if (number)
		call_flow(*number, r->flow.family, key);
	return !!number;
}

/* Whether an entry of another server stays, though a director of a pair told of it. */
static __always_inline enum record_result backup_differs(const struct flow *key,
							 const struct conn_record *r,
							 struct conn *seen)
{
	__s64 ahead = backup_ahead(key, seen, r);

	if (ahead >= -(__s64)EXPIRY_SLACK)
		return RECORD_DIFFERENT;
	backup_replace(key, r, seen);
	return ahead == BACKUP_NEVER ? RECORD_NONE : RECORD_REPLACED;
}

/* A record of an entry that there is: what became of it. RECORD_NONE, RECORD_REPLACED: there
 * is none now. */
static __noinline enum record_result backup_known(const struct conn_record *r,
						  const struct call *call)
{
	struct conn seen = {};
	struct flow key;

	if (!record_key(r, call, &key) || !conn_look(&key, &seen))
		return r->known ? RECORD_KEPT : RECORD_NONE;
	if (r->kind == RECORD_ENDED)
		return backup_end(&key, r, &seen);
	if (r->kind == RECORD_COPY)
		return RECORD_KEPT;
	if (r->kind == RECORD_REPLICA && backup_in_use(&key, &seen, r))
		return RECORD_KEPT;
	if (seen.server != r->server || (!key.template && seen.port != r->port))
		return r->kind == RECORD_SHARED ? backup_differs(&key, r, &seen)
						: backup_replace(&key, r, &seen);
	if (r->kind == RECORD_SHARED && backup_stays(&key, &seen, r))
		return RECORD_KEPT;
	backup_update(&key, r, &seen);
	return RECORD_UPDATED;
}

/* Notes of an entry that was imported just now who told of it, and reports it. */
static __noinline void backup_entered(const struct conn_record *r, const struct call *call)
{
	struct conn given = {}, *c;
	struct flow flow;
	__u32 claim;

	if (!record_key(r, call, &flow))
		return;
	c = conn_claim(&flow, &claim);
	if (c && conn_lives(c))
		backup_note(c, &flow, r);
	if (c)
		bucket_release(claim);
	if (!record_noted(r))
		return;
	record_conn(r, &given);
	given.expires = r->expires;
	if (flow.template)
		given.template = TEMPLATE_NONE;
	follow_tell(&flow, &given, FOLLOW_OPEN, given.state);
}

/* One of the records that user space enters. */
static long record_enter(__u32 i, void *unused)
{
	struct conn_record *r = bpf_map_lookup_elem(&conn_records, &i);
	struct call *call = bpf_map_lookup_elem(&call_records, &i);
	enum record_result known = RECORD_NONE;

	if (!r || !call || !r->flow.family)
		return 0;
	room_prepare(entry_kind(r->flow.family), ROOM_AT_HAND);
	split_if_due();
	if (r->kind != RECORD_NEW)
		known = backup_known(r, call);
	if (known == RECORD_NONE && r->kind == RECORD_ENDED)
		known = RECORD_KEPT;
	if (known != RECORD_NONE && known != RECORD_REPLACED) {
		r->result = known;
	} else if (r->flow.template) {
		r->result = import_template(r, call);
	} else {
		conn_lapse(&r->flow); /* not deeper: a chain of calls has 8 frames */
		r->result = import_conn(r);
	}
	if (r->kind == RECORD_NEW || r->result != RECORD_ENTERED)
		return 0;
	backup_entered(r, call);
	if (known == RECORD_REPLACED)
		r->result = known;
	return 0;
}

#endif
