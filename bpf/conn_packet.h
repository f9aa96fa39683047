/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Packets of connections that there are: counted, followed, and decided about.
 */
#ifndef IMBANG_CONN_PACKET_H
#define IMBANG_CONN_PACKET_H

#include "conn_life.h"
#include "counters.h"
#include "forward/deliver.h"
#include "fragment.h"
#include "settings.h"
#include "sync.h"

/* Notes of a packet whose flow was looked up that there is an entry, which does not live any
 * more: it is ended before a new connection is scheduled. */
static __always_inline void note_lapsed(struct packet *p, const struct conn *seen)
{
	p->inherited.lapsed = seen->index != 0;
}

/* A packet of a connection from its client. */
static __always_inline int conn_in(struct packet *p, const struct flow *flow,
				   const struct conn *seen, const struct server *s,
				   const struct settings *set)
{
	__u16 packets;

	count_in(p, s->service, seen->server);
	if (p->part != LATER_PART) {
		packets = packets_after(seen->in_packets, set);
		if (packets != seen->in_packets)
			conn_set_packets(seen, packets);
		if (set->syncing)
			p->packets = packets;
	}
	p->hairpin = seen->flags & CONN_HAIRPIN ? HAIRPIN : HAIRPIN_NONE;
	conn_follow(p, flow, seen, replies_seen(seen) ? FROM_CLIENT : CLIENT_ONLY, set);
	if (p->part == FIRST_PART)
		fragment_note(p, flow, FROM_CLIENT, NO_SERVER);
	return decide_server(p, seen->server, s, seen->forward, seen->port);
}

/* A packet of a connection from its server. */
static __always_inline int conn_out(struct packet *p, const struct flow *client, struct conn *seen,
				    const struct settings *set)
{
	count_out(p, seen->server);
	p->from_server = 1;
	p->hairpin = seen->flags & CONN_HAIRPIN ? HAIRPIN : HAIRPIN_NONE;
	if (!replies_seen(seen))
		conn_mark(client, seen->server, CONN_REPLIED);
	if (p->part != LATER_PART)
		conn_answered(client, seen, reply_marks(seen, p->tcp_bits, p->chunk));
	conn_follow(p, client, seen, FROM_SERVER, set);
	if (p->part == FIRST_PART)
		fragment_note(p, client, FROM_SERVER, NO_SERVER);
	p->server = seen->server;
	p->forward = seen->forward;
	p->to = client->dst;
	p->port = client->dport;
	return TO_CLIENT;
}

/* A packet of a connection that is reset: the connection follows the reset, which the
 * other side gets with its own next packet. */
static __always_inline int conn_reset(struct packet *p, const struct flow *client,
				      const struct conn *seen, __u32 direction,
				      const struct settings *set)
{
	p->server = seen->server;
	p->from_server = direction == FROM_SERVER;
	p->tcp_bits |= TCP_BIT_RST;
	conn_follow(p, client, seen, direction, set);
	p->reason = REASON_REFUSED_DRAINED;
	return RESET;
}

static __always_inline struct server *available_server(const struct conn *c)
{
	__u32 id = c->server;
	struct server *s = server_of(id);

	return s && s->flags & SERVER_AVAILABLE ? s : 0;
}

/* A client that opens a connection anew from the port of one that is over gets
 * a new one: Linux's conn_reuse_mode, without its lost SYN. A template's
 * connection keeps its server anyway (is_new_conn_expected). */
static __always_inline int conn_is_over(const struct conn *c, const struct settings *set)
{
	if (!set->conn_reuse_mode || c->template)
		return 0;
	if (c->state == TCP_TIME_WAIT || c->state == TCP_CLOSE || c->state == SCTP_CLOSED)
		return 1;
	return set->conn_reuse_mode & 2 && c->state == TCP_FIN_WAIT && !replies_seen(c);
}

static __always_inline int opens_connection(const struct packet *p)
{
	if (p->flow.protocol == IPPROTO_SCTP)
		return p->chunk == CHUNK_INIT;
	return p->flow.protocol == IPPROTO_TCP && p->tcp_bits & TCP_BIT_SYN;
}

/* Whether a packet begins something, and so is no reply. */
static __always_inline int begins(const struct packet *p)
{
	if (p->flow.protocol == IPPROTO_TCP)
		return (p->tcp_bits & (TCP_BIT_SYN | TCP_BIT_ACK)) == TCP_BIT_SYN;
	return p->flow.protocol == IPPROTO_SCTP && p->chunk == CHUNK_INIT;
}

/* May a packet open a connection? A SYN with ACK may be one of an active FTP
 * server (tcp_conn_schedule). */
static __always_inline int may_open(const struct packet *p, const struct settings *set)
{
	switch (p->flow.protocol) {
	case IPPROTO_TCP:
		return (opens_connection(p) || set->sloppy_tcp) && !(p->tcp_bits & TCP_BIT_RST);
	case IPPROTO_SCTP:
		return opens_connection(p) || (set->sloppy_sctp && p->chunk != CHUNK_ABORT);
	}
	return 1;
}

/* Whether a packet of this connection requires a new one (ip_vs_in_hook). Linux drops a
 * SYN whose connection is not over and whose server was deleted, for as long as that
 * connection lives; but its client knows of no connection any more. */
static __always_inline int conn_outdated(const struct packet *p, const struct conn *c,
					 const struct server *s, const struct settings *set)
{
	if (!s)
		return set->expire_nodest_conn || (set->conn_reuse_mode && opens_connection(p));
	if (!server_lease(s, set))
		return 1;
	if (p->flow.protocol != IPPROTO_TCP && drain_over(s))
		return 1;
	if (!opens_connection(p))
		return 0;
	return (!s->weight && (set->expire_nodest_conn || set->drain_timeout)) ||
	       s->flags & SERVER_DRAINING || conn_is_over(c, set);
}

#endif
