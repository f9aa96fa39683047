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
#include <linux/ipv6.h>
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
#include "orphans.h"
#include "sweep.h"
#include "challenge.h"
#include "fragment.h"
#include "icmp.h"
#include "forward/cut.h"
#include "forward/deliver.h"
#include "related.h"
#include "tunnel_error.h"
#include "rates.h"
#include "trace.h"

/* A packet of a connection from its client. */
static __always_inline int conn_in(struct packet *p, const struct flow *flow, struct conn *c,
				   const struct server *s, const struct settings *set)
{
	count_in(p, s->service, c->server);
	if (c->in_packets < MANY_PACKETS)
		c->in_packets++;
	p->hairpin = c->flags & CONN_HAIRPIN ? HAIRPIN : HAIRPIN_NONE;
	conn_follow(p, flow, c, answers_seen(c) ? FROM_CLIENT : CLIENT_ONLY, set);
	if (p->part == FIRST_PART)
		fragment_note(p, flow, FROM_CLIENT, NO_SERVER);
	return decide_server(p, c->server, s, c->forward, c->port);
}

/* A packet of a connection from its server. */
static __always_inline int conn_out(struct packet *p, const struct flow *client, struct conn *c,
				    const struct settings *set)
{
	if (!c)
		return pass(p, REASON_PASS_NO_CONNECTION);
	count_out(p, c->server);
	p->from_server = 1;
	p->hairpin = c->flags & CONN_HAIRPIN ? HAIRPIN : HAIRPIN_NONE;
	conn_answered(c);
	conn_follow(p, client, c, FROM_SERVER, set);
	if (p->part == FIRST_PART)
		fragment_note(p, client, FROM_SERVER, NO_SERVER);
	p->server = c->server;
	p->forward = c->forward;
	p->to = client->dst;
	p->port = client->dport;
	return TO_CLIENT;
}

static __always_inline struct server *available_server(const struct conn *c)
{
	__u32 id = c->server;
	struct server *s = bpf_map_lookup_elem(&servers, &id);

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
	return set->conn_reuse_mode & 2 && c->state == TCP_FIN_WAIT && !answers_seen(c);
}

static __always_inline int opens_connection(const struct packet *p)
{
	if (p->flow.protocol == IPPROTO_SCTP)
		return p->chunk == CHUNK_INIT;
	return p->flow.protocol == IPPROTO_TCP && p->tcp_bits & TCP_BIT_SYN;
}

/* Whether a packet of this connection wants another one (ip_vs_in_hook). */
static __always_inline int conn_outdated(const struct packet *p, const struct conn *c,
					 const struct server *s, const struct settings *set)
{
	if (!s)
		return set->expire_nodest_conn;
	if (!server_lease(s, set))
		return 1;
	if (!opens_connection(p))
		return 0;
	return (!s->weight && (set->expire_nodest_conn || set->drain_timeout)) ||
	       conn_is_over(c, set);
}

static __always_inline void pick_for(const struct packet *p, const struct service *svc,
				     struct pick *pick)
{
	struct settings *set = get_settings();

	pick->fallback = set && set->hash_fallback;
	pick->service = svc->id;
	pick->first = svc->first;
	pick->count = svc->count;
	pick->flags = svc->flags;
	pick->src = p->flow.src;
	pick->dst = p->flow.dst;
	pick->sport = p->flow.sport;
	pick->family = p->flow.family;
	pick->protocol = p->flow.protocol;
	pick->without = NO_SERVER;
}

/* The port of the server: its own, or the one that the client asked for. A
 * template for every port leaves it to the client, and only masquerading can
 * change it. */
static __always_inline __be16 server_port(const struct packet *p, const struct service *svc,
					  const struct server *s)
{
	if (!s->port || s->forward != FORWARD_MASQ || (svc->template && p->flow.dport != svc->port))
		return p->flow.dport;
	return s->port;
}

/* Ends the connection of a packet's flow that was found to be outdated. Its
 * appointment is for who comes next: a client may use a port over and over. */
__noinline int conn_end(struct packet *p)
{
	struct conn *c = p ? conn_find(&p->flow) : 0;

	if (!c)
		return 0;
	p->heritage.tick = c->tick;
	p->heritage.number = c->number;
	conn_remove(&p->flow, c);
	return 0;
}

/* Whether the packet is a connection by itself. */
static __always_inline int one_packet(const struct packet *p, const struct service *svc)
{
	return svc->flags & SVC_ONE_PACKET && p->flow.protocol == IPPROTO_UDP;
}

/* The packet that opened a connection. One ahead is counted when it is sure to go. */
static __always_inline int conn_first(struct packet *p, const struct conn *c,
				      const struct server *s)
{
	if (!p->ahead)
		count_in(p, s->service, c->server);
	if (p->part == FIRST_PART)
		fragment_note(p, &p->flow, FROM_CLIENT, NO_SERVER);
	return decide_server(p, c->server, s, c->forward, c->port);
}

/* A new connection of a service to the server that was chosen for it. */
__noinline int conn_open(struct packet *p, const struct service *svc, __u32 id)
{
	struct server *s = bpf_map_lookup_elem(&servers, &id);
	struct load *l = bpf_map_lookup_elem(&loads, &id);
	struct settings *set = get_settings();
	struct conn fresh = {};
	int verdict;

	if (!p || !svc || !set)
		return VERDICT_DROP;
	fresh.server = id;
	fresh.template = svc->template;
	fresh.netmask = svc->netmask;
	fresh.fwmark = svc->fwmark;
	fresh.tick = p->heritage.tick;
	fresh.number = p->heritage.number;
	p->server = id;
	if (!s || !l || !(s->flags & SERVER_AVAILABLE)) {
		verdict = drop(p, REASON_DROP_SERVER_DELETED);
		goto none;
	}
	fresh.port = server_port(p, svc, s);
	fresh.forward = s->forward;
	if (p->hairpin == HAIRPIN_IMPOSSIBLE) {
		verdict = drop(p, REASON_DROP_NO_HAIRPIN);
		goto none;
	}
	if (p->hairpin)
		fresh.flags = CONN_HAIRPIN;
	if (one_packet(p, svc)) {
		/* A connection for as long as the packet takes: it may be
		 * the one that reaches a threshold. */
		server_bind(s, l, 1);
		server_unbind(id, 1);
		count_conn(svc->id, id);
		count_in(p, svc->id, id);
		p->news |= NEWS_OPENED;
		if (p->part == FIRST_PART)
			fragment_note(p, &p->flow, FROM_CLIENT, id);
		verdict = decide_server(p, id, s, fresh.forward, fresh.port);
		goto none;
	}
	conn_begin(p, &fresh, set);
	server_bind(s, l, fresh.flags & CONN_INACTIVE);
	load_changed(id);
	if (!conn_create(p, &fresh, s, set)) {
		count_conn(svc->id, id);
		return conn_first(p, &fresh, s);
	}
	server_unbind(id, fresh.flags & CONN_INACTIVE);
	/* Another CPU may have been first with the same packet. */
	verdict = conn_find(&p->flow) ? UNDECIDED : drop(p, REASON_DROP_TABLE_FULL);
none: /* no connection came of it: the template is held for none */
	conn_release(&p->flow, &fresh);
	return verdict;
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

/* The scheduler's choice; NO_SERVER if no server can take the connection. */
__noinline __u32 choose(struct packet *p, const struct service *svc)
{
	struct pick pick = {};

	if (!p || !svc)
		return NO_SERVER;
	pick_for(p, svc, &pick);
	if (!p->peek && !traced())
		return schedule(&pick, svc->scheduler);
	p->news |= NEWS_CHOSEN | NEWS_NOTED;
	return choose_aloud(p, &pick, svc->scheduler);
}

/* Likewise, or a template's server. The connection then holds a template if
 * the service is persistent. */
static __always_inline __u32 server_for(struct packet *p, const struct service *svc)
{
	__u32 id;

	if (!svc->template)
		return choose(p, svc);
	id = template_use(p, svc);
	if (id != NO_SERVER) {
		note_template(p, id);
		return id;
	}
	id = choose(p, svc);
	return id == NO_SERVER || p->peek ? id : template_open(p, svc, id);
}

/* conn_open, or with the setting hairpin perhaps one. */
static __always_inline int conn_or_hairpin(struct __sk_buff *skb, struct packet *p,
					   const struct service *svc, __u32 id,
					   const struct settings *set)
{
	struct server *s = bpf_map_lookup_elem(&servers, &id);
	int verdict;

	if (set->hairpin && s && !one_packet(p, svc) && hairpin_wanted(skb, p, s))
		p->hairpin = hairpin_open(&p->flow, s, server_port(p, svc, s)) ? HAIRPIN_IMPOSSIBLE
									       : HAIRPIN;
	verdict = conn_open(p, svc, id);
	if (p->hairpin && verdict == VERDICT_DROP)
		hairpin_close(&p->flow);
	return verdict;
}

/* The server to which a packet would open a connection. */
static __always_inline int would_open(struct packet *p, const struct service *svc, __u32 id)
{
	struct server *s = bpf_map_lookup_elem(&servers, &id);

	p->server = id;
	if (!s || !(s->flags & SERVER_AVAILABLE))
		return drop(p, REASON_DROP_SERVER_DELETED);
	return decide_server(p, id, s, s->forward, server_port(p, svc, s));
}

/* Nothing new comes of a packet, but the end of what was outdated. */
static __always_inline int none_new(struct packet *p, int outdated, __u32 reason)
{
	if (outdated && !p->peek)
		conn_end(p);
	return pass(p, reason);
}

/* The key is not for the stack of what comes after. */
static __noinline struct service *service_wanted(const struct packet *p, const struct settings *set)
{
	struct service_key key;

	return service_find(p, set, &key);
}

/*
 * A packet of no known connection: perhaps the first of a new one. One that
 * is outdated may be there; it counts until its successor's server is chosen,
 * as in Linux. Returns a verdict or a decision. Without an skb it is ahead.
 */
static __always_inline int conn_schedule(struct __sk_buff *skb, struct packet *p, int outdated)
{
	struct settings *set = get_settings();
	struct service *svc;
	__u32 id;

	if (!p || !set)
		return VERDICT_DROP;
	if (!may_open(p, set))
		return none_new(p, outdated, REASON_PASS_NO_CONNECTION);
	svc = service_wanted(p, set);
	if (!svc)
		return none_new(p, outdated, REASON_PASS_NO_SERVICE);
	if (!address_of_host(&p->flow.src))
		return none_new(p, outdated, REASON_PASS_MARTIAN);
	/* A connection and a packet at once, or turns to be taken of packets
	 * that there may be no server for. */
	if (!skb && (one_packet(p, svc) || defence_works(set->drop_packet)))
		return UNDECIDED;
	if (drop_packet(p, set)) {
		none_new(p, outdated, REASON_DROP_DEFENCE);
		return VERDICT_DROP;
	}
	if (p->flow.sport == bpf_htons(20))
		return none_new(p, outdated, REASON_PASS_FTP_DATA);
	/* Other ports of an FTP service need persistence. */
	if (!svc->template && !svc->fwmark && p->flow.dport != svc->port)
		return none_new(p, outdated, REASON_PASS_NO_SERVICE);
	if (!admitted(p))
		return drop(p, p->peek ? REASON_DROP_CHALLENGED : REASON_DROP_UNPROVEN);

	if (outdated)
		p->news |= NEWS_OUTDATED;
	id = server_for(p, svc);
	if (outdated && !p->peek)
		conn_end(p);
	if (id == NO_SERVER)
		return refuse(p, ICMP_ERROR_PORT, 0, REASON_REFUSED_NO_SERVER);
	if (!skb)
		return conn_open(p, svc, id);
	if (p->peek)
		return would_open(p, svc, id);
	return conn_or_hairpin(skb, p, svc, id, set);
}

__noinline int conn_new(struct __sk_buff *skb, struct packet *p, int outdated)
{
	return conn_schedule(skb, p, outdated);
}

/* Likewise, before there is an skb: the connection is opened, and nothing made
 * of its packet yet. */
__noinline int conn_new_ahead(struct packet *p)
{
	return conn_schedule(0, p, 0);
}

/* A packet of a connection whose server was deleted. */
static __always_inline int conn_orphaned(struct packet *p, const struct conn *c)
{
	p->server = c->server;
	return drop(p, REASON_DROP_SERVER_DELETED);
}

/* What the fast path tells the whole one. */
enum found {
	EXPECT_ANSWERS = 0x1, /* servers are where the packet came in */
	NOTHING_FOUND = 0x2,  /* it is of no connection; or an answer, of clients' device */
};

/* A whole packet, or the fragment that has the ports: of which connection?
 * UNDECIDED if none; *outdated tells of one that is not to be used. */
__noinline int find(struct packet *p, int expect_answers, int *outdated)
{
	struct settings *set = get_settings();
	struct flow client;
	struct server *s;
	struct conn *c;

	if (!p || !set || !outdated)
		return VERDICT_DROP;
	c = expect_answers ? answered(&p->flow, &client) : 0;
	if (c)
		return conn_out(p, &client, c, set);
	c = conn_find(&p->flow);
	if (c) {
		s = available_server(c);
		if (!conn_outdated(p, c, s, set))
			return s ? conn_in(p, &p->flow, c, s, set) : conn_orphaned(p, c);
		*outdated = 1;
	}
	return UNDECIDED;
}

/* An answer that came in where clients do; UNDECIDED if it is none. Where servers
 * are, too, it is looked for before a new connection, and else last. */
__noinline int find_answer(struct packet *p)
{
	struct settings *set = get_settings();
	struct flow client;
	struct conn *c;

	if (!p || !set)
		return UNDECIDED;
	c = answered(&p->flow, &client);
	if (!c)
		return UNDECIDED;
	p->news &= ~NEWS_ASIDE;
	return conn_out(p, &client, c, set);
}

/* A later fragment of a packet that is a connection by itself. */
static __always_inline int one_packet_later(struct packet *p, __u32 id)
{
	struct server *s = bpf_map_lookup_elem(&servers, &id);

	if (!s || !(s->flags & SERVER_AVAILABLE))
		return drop(p, REASON_DROP_SERVER_DELETED);
	count_in(p, s->service, id);
	return decide_server(p, id, s, s->forward, 0);
}

/* A fragment without ports: it goes where the first one went. Returns a
 * verdict or a decision. */
__noinline int find_later(struct packet *p)
{
	struct settings *set = get_settings();
	struct fragment *f;
	struct flow client;
	struct server *s;
	struct conn *c;

	if (!p || !set)
		return VERDICT_DROP;
	f = fragment_find(p);
	if (!f)
		return pass(p, REASON_PASS_FRAGMENT);
	if (f->server != NO_SERVER)
		return one_packet_later(p, f->server);
	client = f->client;
	p->flow.protocol = client.protocol;
	if (f->direction == FROM_SERVER)
		return conn_out(p, &client, conn_find(&client), set);
	c = conn_find(&client);
	s = c ? available_server(c) : 0;
	if (s)
		return conn_in(p, &client, c, s, set);
	return c ? conn_orphaned(p, c) : drop(p, REASON_DROP_SERVER_DELETED);
}

/* Returns a verdict or a decision. */
static __always_inline int decide(struct __sk_buff *skb, struct packet *p, __u32 found)
{
	struct settings *set = get_settings();
	int outdated = 0, expect_answers = found & EXPECT_ANSWERS, decision = UNDECIDED;
	int parsed = parse(skb, p);

	if (parsed != PARSED)
		return pass(p, parsed);
	if (!set || !in_use(p, set))
		return pass(p, REASON_PASS_NO_SERVICE);
	if (is_icmp(p)) {
		decision = related(skb, p);
		return decision == UNDECIDED ? tunnel_error(skb, p) : decision;
	}
	if (p->part == LATER_PART)
		return find_later(p);
	if (!(found & NOTHING_FOUND))
		decision = find(p, expect_answers, &outdated);
	if (decision == UNDECIDED && set->one_device && !(found & NOTHING_FOUND))
		decision = find_answer(p);
	if (decision == UNDECIDED)
		decision = conn_new(skb, p, outdated);
	if (decision == UNDECIDED)
		decision = find(p, expect_answers, &outdated);
	if (decision == VERDICT_PASS && !expect_answers && !outdated) {
		decision = find_answer(p);
		if (decision == UNDECIDED)
			decision = VERDICT_PASS;
	}
	return decision;
}

static __always_inline int carry_out(struct __sk_buff *skb, struct packet *p, int decision)
{
	if (p->hairpin && (decision == TO_SERVER || decision == TO_CLIENT))
		decision = hairpin(skb, p);
	else if (decision == TO_SERVER)
		decision = p->forward == FORWARD_TUNNEL ? tunnel(skb, p) : to_server(skb, p);
	else if (decision == TO_CLIENT)
		decision = to_client(skb, p);
	else if (decision == UNDECIDED) /* two CPUs in each other's way */
		decision = drop(p, REASON_DROP_TABLE_FULL);
	if (p->cut && decision == VERDICT_REDIRECT)
		return cut(skb, p);
	if (decision == TOLD_ON)
		return tell_on(skb, p);
	return decision == REFUSED ? icmp_error(skb, p) : decision;
}

static __always_inline int handle(struct __sk_buff *skb, __u32 found)
{
	struct packet p = { .server = NO_SERVER };
	int verdict = carry_out(skb, &p, decide(skb, &p, found));

	if (p.news)
		report(&p);
	return verdict;
}

#include "explain.h"
#include "fast.h"
#include "local.h"
#include "xdp.h"

/* Every packet that the fast path leaves. */
SEC("tc")
int lb_whole(struct __sk_buff *skb)
{
	return handle(skb, skb->cb[0]);
}

/* user: programs that go on with a packet. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} stages SEC(".maps") = {
	.values = { [0] = (void *)&lb_whole },
};

static __always_inline int enter(struct __sk_buff *skb, int expect_answers)
{
	int verdict = fast(skb, expect_answers);

	if (verdict != UNDECIDED && verdict != UNKNOWN)
		return verdict;
	skb->cb[0] = expect_answers | (verdict == UNKNOWN ? NOTHING_FOUND : 0);
	bpf_tail_call(skb, &stages, 0);
	return VERDICT_PASS; /* the director is being taken down */
}

/* Both programs do the same; they differ in which half they look for first. */

SEC("tc")
int lb_client(struct __sk_buff *skb)
{
	return enter(skb, 0);
}

SEC("tc")
int lb_server(struct __sk_buff *skb)
{
	return enter(skb, 1);
}

/* In front of them, in the modes of XDP. */

/* Plain packets that the fast path leaves. */
SEC("xdp")
int lb_xdp_more(struct xdp_md *ctx)
{
	struct packet p = { .server = NO_SERVER };

	return xdp_more(ctx, &p);
}

/* user: as stages. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} xdp_stages SEC(".maps") = {
	.values = { [0] = (void *)&lb_xdp_more },
};

static __always_inline int xdp_enter(struct xdp_md *ctx, int expect_answers)
{
	int action = xdp_fast(ctx, expect_answers);

	if (action != UNDECIDED)
		return action;
	bpf_tail_call(ctx, &xdp_stages, 0);
	return XDP_PASS;
}

SEC("xdp")
int lb_xdp_client(struct xdp_md *ctx)
{
	return xdp_enter(ctx, 0);
}

SEC("xdp")
int lb_xdp_server(struct xdp_md *ctx)
{
	return xdp_enter(ctx, 1);
}

/* On the way out of the same devices. */
SEC("tc")
int lb_local(struct __sk_buff *skb)
{
	/* It came in somewhere: a packet forwarded. */
	if (skb->ingress_ifindex)
		return VERDICT_PASS;
	return handle_local(skb);
}

/* Run by `imbang why`, on a packet that is none. */
SEC("tc")
int explain(struct __sk_buff *skb)
{
	return explain_packet(skb);
}

/* Run once when the tables are made; again if it fails for want of memory. Not
 * of type syscall: such a program may sleep, and older kernels then keep it
 * from tables whose values hold a lock. */
SEC("tc")
int start_clocks(struct __sk_buff *skb)
{
	int rc = wheel_start();

	rc = rc ? rc : rate_start();
	return rc ? rc : sweep_start();
}

/* Run by commands that take servers away; a classifier as start_clocks is. */
SEC("tc")
int end_orphans(struct __sk_buff *skb)
{
	orphans_end();
	return 0;
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
