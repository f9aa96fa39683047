/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Records of connections and templates that user space enters (struct conn_record):
 * an upgrade (adopt.h), and commands that import them (import.h).
 */
#ifndef IMBANG_RECORD_H
#define IMBANG_RECORD_H

#include "attack.h"
#include "clock.h"
#include "template.h"

/* What the table is to have of a record. */
static __always_inline void record_conn(const struct conn_record *r, struct conn *fresh)
{
	fresh->server = r->server;
	fresh->port = r->port;
	fresh->state = r->state;
	fresh->flags = r->flags;
	fresh->template = r->template;
	fresh->forward = r->forward;
	fresh->in_packets = r->in_packets;
	fresh->fwmark = r->fwmark;
	fresh->netmask = r->netmask;
}

/* Whether what a record says shows as little of the client as its first packet did. */
static __always_inline int record_unproven(const struct conn_record *r)
{
	if (r->flow.template)
		return !(r->flags & CONN_ASSURED);
	if (r->state < TCP_STATES)
		return tcp_half_open(r->state);
	return r->in_packets < 2 && !is_established(r->state);
}

/* Likewise, of one that is not of an upgrade: it does not say what is shown. */
static __always_inline void record_fresh(const struct conn_record *r, struct conn *fresh)
{
	record_conn(r, fresh);
	if (record_unproven(r))
		fresh->flags |= CONN_UNPROVEN;
}

/* Whether a record may have this server: what a master told waits for a server that is not
 * here, or not any more. */
static __always_inline int record_server(const struct conn_record *r, const struct server *s)
{
	return r->kind == RECORD_TOLD || s->flags & SERVER_AVAILABLE;
}

static __always_inline struct control record_control(const struct conn_record *r)
{
	struct control control = {
		.kind = r->template,
		.netmask = r->netmask,
		.fwmark = r->fwmark,
		.server = r->server,
	};

	return control;
}

/* Whether a director of this kind told of an entry that it has (told_replica). */
static __always_inline int record_noted(const struct conn_record *r)
{
	return r->kind == RECORD_REPLICA || r->kind == RECORD_SHARED || r->kind == RECORD_COPY;
}

/* How long it has left [ns]. */
static __always_inline __u64 record_timeout(const struct conn_record *r)
{
	__u64 now = now_coarse_ns();

	return r->expires > now ? r->expires - now : 0;
}

#endif
