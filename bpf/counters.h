/* SPDX-License-Identifier: GPL-2.0-only */
/* Counting: what services and servers carried, what became of the rest. */
#ifndef IMBANG_COUNTERS_H
#define IMBANG_COUNTERS_H

#include "by_id.h"
#include "maps.h"
#include "packet.h"

/* Each CPU has its own counter: no atomics. */
static __always_inline void count_reason(__u32 reason)
{
	__u64 *n = bpf_map_lookup_elem(&reasons, &reason);

	if (n)
		(*n)++;
}

/* Says why a packet is not simply forwarded: counted at its end. */
static __always_inline void turn_aside(struct packet *p, __u32 reason)
{
	p->news |= NEWS_ASIDE;
	p->reason = reason;
}

static __always_inline int pass(struct packet *p, __u32 reason)
{
	turn_aside(p, reason);
	return VERDICT_PASS;
}

static __always_inline int drop(struct packet *p, __u32 reason)
{
	turn_aside(p, reason);
	return VERDICT_DROP;
}

/* ip_vs_conn_stats: a new connection. */
static __always_inline void count_conn(__u32 service, __u32 server)
{
	struct counters *c;

	c = server_counters_of(server);
	if (c)
		c->conns++;
	c = service_counters_of(service);
	if (c)
		c->conns++;
}

static __always_inline void count_in(const struct packet *p, __u32 service, __u32 server)
{
	struct counters *c;

	c = server_counters_of(server);
	if (c) {
		c->in_packets += p->segments;
		c->in_bytes += packet_bytes(p);
	}
	c = service_counters_of(service);
	if (c) {
		c->in_packets += p->segments;
		c->in_bytes += packet_bytes(p);
	}
}

static __always_inline void count_out(const struct packet *p, __u32 server)
{
	struct server *s = server_of(server);
	struct counters *c;

	c = server_counters_of(server);
	if (c) {
		c->out_packets += p->segments;
		c->out_bytes += packet_bytes(p);
	}
	/* A deleted server no longer counts for its service. */
	if (!s || !(s->flags & SERVER_AVAILABLE))
		return;
	c = service_counters_of(s->service);
	if (c) {
		c->out_packets += p->segments;
		c->out_bytes += packet_bytes(p);
	}
}

#endif
