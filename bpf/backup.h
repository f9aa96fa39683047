/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a master tells of entries that a backup has already (ip_vs_proc_conn); those that it
 * has not are imported. As in Linux no template controls the connections of a backup:
 * a template lives by what is told of it.
 */
#ifndef IMBANG_BACKUP_H
#define IMBANG_BACKUP_H

#include "conn_life.h"
#include "import.h"
#include "record.h"
#include "sync.h"

/* Changes the entry of a flow to what a record says, if it is still what was seen; 0 if it
 * is not. *active: how its server's count of active connections changes. */
static __always_inline int backup_change_in(const struct flow *flow, union conn_key *key,
					    const struct conn_record *r, const struct conn *seen,
					    __s32 *active, __u8 family)
{
	struct conn *c = conn_find_in(flow, key, family);
	__s32 moved = 0;
	int done = 0;

	if (!c)
		return 0;
	bpf_spin_lock(&c->lock);
	if (conn_lives(c, key, family) && c->server == seen->server) {
		c->in_packets = r->in_packets;
		if (flow->template) {
			c->timeout = r->netmask;
			c->flags = (c->flags & ~CONN_ASSURED) | (r->flags & CONN_ASSURED);
			told_of(c)->state = r->flags & CONN_ASSURED;
		} else {
			moved = conn_become(c, r->state);
			told_of(c)->state = r->state;
		}
		done = 1;
	}
	bpf_spin_unlock(&c->lock);
	*active = moved;
	return done;
}

static __noinline int backup_change(const struct flow *flow, const struct conn_record *r,
				    const struct conn *seen, __s32 *active)
{
	union conn_key key;

	return flow->family == AF_INET6 ? backup_change_in(flow, &key, r, seen, active, AF_INET6)
					: backup_change_in(flow, &key, r, seen, active, AF_INET);
}

static __always_inline void backup_update(const struct flow *flow, const struct conn_record *r,
					  const struct conn *seen)
{
	__s32 active = 0;

	if (!backup_change(flow, r, seen, &active))
		return;
	if (active)
		conn_counted(seen->server, active);
	conn_end_at(flow, seen, now_coarse_ns() + record_timeout(r), r->state);
	if (flow->template || seen->state == r->state)
		return;
	handshake_follow(seen->state, r->state);
	follow_tell(flow, 0, FOLLOW_STATE, seen->state);
}

/* A record of an entry that there is: what became of it. RECORD_NONE: there is none now. */
static __noinline enum record_result backup_known(const struct conn_record *r,
						  const struct call *call)
{
	struct flow key = r->flow;
	struct conn seen;
	__u32 *number;

	if (r->template == TEMPLATE_CALL && key.template) {
		number = bpf_map_lookup_elem(&calls, call);
		if (!number)
			return RECORD_NONE;
		call_flow(*number, r->flow.family, &key);
	}
	if (!conn_look(&key, &seen))
		return RECORD_NONE;
	/* A template keeps its server. */
	if (!key.template && (seen.server != r->server || seen.port != r->port)) {
		if (!counts_active(r->state))
			return RECORD_OUTDATED;
		if (conn_kill(&key, &seen, 0))
			conn_remove(&key, &seen);
		return RECORD_NONE;
	}
	backup_update(&key, r, &seen);
	return RECORD_UPDATED;
}

/* One of the records that user space enters. */
static long record_enter(__u32 i, void *unused)
{
	struct conn_record *r = bpf_map_lookup_elem(&conn_records, &i);
	struct call *call = bpf_map_lookup_elem(&call_records, &i);
	enum record_result known = RECORD_NONE;

	if (!r || !call || !r->flow.family)
		return 0;
	if (r->told)
		known = backup_known(r, call);
	if (known != RECORD_NONE)
		r->result = known;
	else
		r->result = r->flow.template ? import_template(r, call) : import_conn(r);
	return 0;
}

#endif
