// SPDX-License-Identifier: GPL-2.0-only
/*
 * The director's packet path: parse, find, pick, forward, count. See
 * ARCHITECTURE.md, "the life of a packet".
 */
#include <linux/bpf.h>
#include <linux/errno.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <stddef.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "types.h"
#include "maps.h"
#include "packet.h"
#include "parse.h"
#include "counters.h"
#include "service.h"
#include "sched.h"
#include "tcp.h"
#include "conn.h"
#include "persist.h"
#include "icmp.h"
#include "forward/out.h"
#include "forward/nat.h"
#include "rates.h"

/* The client's half of a connection: on to the server. */
static __always_inline int forward_in(struct packet *p, const union address *addr, __be16 port)
{
	__be32 to = address_to4(addr);
	struct way way;
	int verdict = route(p, p->flow.src, to, &way);

	if (verdict != ROUTED)
		return verdict;
	if (nat_rewrite(p, NAT_DESTINATION, to, port))
		return drop(REASON_DROP_REWRITE);
	return transmit(p, &way);
}

/* The server's half: back to the client, in the service's name. */
static __always_inline int forward_out(struct packet *p, const struct flow4 *client)
{
	struct way way;
	int verdict = route(p, client->dst, p->flow.dst, &way);

	if (verdict != ROUTED)
		return verdict;
	if (nat_rewrite(p, NAT_SOURCE, client->dst, client->dport))
		return drop(REASON_DROP_REWRITE);
	return transmit(p, &way);
}

/* A packet of a known connection from its client. */
static __always_inline int conn_in(struct packet *p, struct conn *c, const struct settings *set)
{
	__u32 server = c->server;
	struct server *s = bpf_map_lookup_elem(&servers, &server);

	if (!s || !(s->flags & SERVER_AVAILABLE))
		return drop(REASON_DROP_SERVER_DELETED);
	count_in(p, s->service, server, 0);
	conn_follow(p, &p->flow, c, FROM_CLIENT, set);
	return forward_in(p, &c->addr, c->port);
}

/* A packet of a known connection from its server. */
static __always_inline int conn_out(struct packet *p, struct flow4 *forward,
				    const struct settings *set)
{
	struct flow4 client = *forward;
	struct conn *c = bpf_map_lookup_elem(&conns4, &client);

	if (!c)
		return pass(REASON_PASS_NO_CONNECTION);
	count_out(p, c->server);
	conn_follow(p, &client, c, FROM_SERVER, set);
	return forward_out(p, &client);
}

/* A client that opens a connection anew from the port of one that is over
 * gets a new one: see conn_reuse_mode of Linux, without its lost SYN. A
 * template's connection keeps its server anyway. */
static __always_inline int conn_is_over(const struct packet *p, const struct conn *c)
{
	return p->tcp_bits & TCP_BIT_SYN && !c->template &&
	       (c->state == TCP_TIME_WAIT || c->state == TCP_CLOSE);
}

static __always_inline void pick_for(const struct packet *p, const struct service *svc,
				     struct pick *pick)
{
	pick->service = svc->id;
	pick->first = svc->first;
	pick->count = svc->count;
	pick->flags = svc->flags;
	address_from4(&pick->src, p->flow.src);
	address_from4(&pick->dst, p->flow.dst);
	pick->sport = p->flow.sport;
	pick->family = AF_INET;
	pick->protocol = p->flow.protocol;
}

/* The port of the server: its own, or the one that the client asked for. A
 * template for every port leaves it to the client. */
static __always_inline __be16 server_port(const struct packet *p, const struct service *svc,
					  const struct server *s)
{
	if (!s->port || (svc->template && p->flow.dport != svc->port))
		return p->flow.dport;
	return s->port;
}

/* A new connection of a service to the server that was chosen for it. */
static __always_inline int conn_open(struct packet *p, const struct service *svc, __u32 id,
				     struct conn *template, const struct settings *set)
{
	struct server *s = bpf_map_lookup_elem(&servers, &id);
	struct load *l = bpf_map_lookup_elem(&loads, &id);
	struct conn fresh = {}, *c;
	int verdict;

	if (!s || !l || !(s->flags & SERVER_AVAILABLE)) {
		verdict = drop(REASON_DROP_SERVER_DELETED);
		goto none;
	}
	if (s->forward != FORWARD_MASQ) {
		verdict = drop(REASON_DROP_FORWARD_METHOD);
		goto none;
	}
	fresh.addr = s->addr;
	fresh.server = id;
	fresh.port = server_port(p, svc, s);
	if (svc->flags & SVC_ONE_PACKET && p->flow.protocol == IPPROTO_UDP) {
		/* A connection for as long as the packet takes: it may be
		 * the one that reaches a threshold. */
		server_bind(s, l);
		server_unbind(id, 1);
		count_in(p, svc->id, id, 1);
		verdict = forward_in(p, &fresh.addr, fresh.port);
		goto none;
	}
	if (template) {
		fresh.template = svc->template;
		fresh.prefix_len = svc->prefix_len;
		fresh.fwmark = svc->fwmark;
	}
	server_bind(s, l);
	c = conn_create(p, &fresh, set);
	if (!c) {
		server_unbind(id, 1);
		c = bpf_map_lookup_elem(&conns4, &p->flow);
		/* Another CPU may have been first with the same packet. */
		verdict = c ? conn_in(p, c, set) : drop(REASON_DROP_TABLE_FULL);
		goto none;
	}
	count_in(p, svc->id, id, 1);
	conn_follow(p, &p->flow, c, FROM_CLIENT, set);
	return forward_in(p, &c->addr, c->port);
none: /* no connection came of it: the template is held for none */
	if (template)
		template_let_go(template);
	return verdict;
}

/* A packet of no known connection: perhaps the first of a new one. `old` is a
 * connection of the same flow that is over; it counts until its successor's
 * server is chosen, as in Linux. */
static __always_inline int conn_new(struct packet *p, struct conn *old, const struct settings *set)
{
	struct conn *template = 0;
	struct service *svc;
	struct pick pick = {};
	__u32 id;

	/* A SYN with ACK may be one of an active FTP server (tcp_conn_schedule). */
	if (p->flow.protocol == IPPROTO_TCP &&
	    (!(p->tcp_bits & TCP_BIT_SYN) || p->tcp_bits & TCP_BIT_RST))
		return pass(REASON_PASS_NO_CONNECTION);
	svc = service_find(p, set);
	if (!svc)
		return pass(REASON_PASS_NO_SERVICE);
	if (p->flow.sport == bpf_htons(20))
		return pass(REASON_PASS_FTP_DATA);
	/* Other ports of an FTP service need persistence. */
	if (!svc->template && !svc->fwmark && p->flow.dport != svc->port)
		return pass(REASON_PASS_NO_SERVICE);

	pick_for(p, svc, &pick);
	if (svc->template) {
		id = persist_pick(p, svc, &pick, &template);
		if (id != NO_SERVER && !template)
			return drop(REASON_DROP_TABLE_FULL);
	} else {
		id = schedule(&pick, svc->scheduler);
	}
	if (old) {
		wheel_cancel(&p->flow, old->tick, old->number);
		conn_remove(&p->flow, old);
	}
	if (id == NO_SERVER)
		return icmp_error(p, ICMP_DEST_UNREACH, ICMP_PORT_UNREACH, 0,
				  REASON_REFUSED_NO_SERVER);
	return conn_open(p, svc, id, template, set);
}

static __always_inline int balance(struct __sk_buff *skb, int expect_answers)
{
	struct packet p = {};
	struct settings *set = get_settings();
	struct flow4 *forward;
	struct conn *c;
	int parsed = parse(skb, &p);

	if (parsed != PARSED)
		return pass(parsed);
	/* Linux takes its hooks away with the last service. */
	if (!set || !set->in_use)
		return pass(REASON_PASS_NO_SERVICE);
	if (expect_answers) {
		forward = bpf_map_lookup_elem(&reverse4, &p.flow);
		if (forward)
			return conn_out(&p, forward, set);
	}
	c = bpf_map_lookup_elem(&conns4, &p.flow);
	if (c) {
		if (!conn_is_over(&p, c))
			return conn_in(&p, c, set);
	} else if (!expect_answers) {
		forward = bpf_map_lookup_elem(&reverse4, &p.flow);
		if (forward)
			return conn_out(&p, forward, set);
	}
	return conn_new(&p, c, set);
}

/* Both programs do the same; they differ in which half they look for first. */

SEC("tc")
int lb_client(struct __sk_buff *skb)
{
	return balance(skb, 0);
}

SEC("tc")
int lb_server(struct __sk_buff *skb)
{
	return balance(skb, 1);
}

/* Run once when the tables are made; again if it fails for want of memory. Not
 * of type syscall: such a program may sleep, and older kernels then keep it
 * from tables whose values hold a lock. */
SEC("tc")
int start_clocks(struct __sk_buff *skb)
{
	int rc = wheel_start();

	return rc ? rc : rate_start();
}

/* Run by commands after each edit of the tables. */
SEC("syscall")
int table_changed(struct change *change)
{
	struct change c = *change;

	if (c.event == CHANGE_REOPEN)
		server_reopen(c.position);
	else
		scheduler_changed(&c);
	return 0;
}

char _license[] SEC("license") = "GPL";
