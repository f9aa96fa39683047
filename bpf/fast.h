/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The fast path: a plain packet of a connection that has a server and a cached route to
 * it. Whatever is not so, or not certain, is left to the whole path, which begins anew;
 * so nothing is changed or counted here before the packet is sure to go.
 *
 * The whole path is another program, reached by a tail call: the verifier
 * walks it once and not for each device, and this one stays small.
 */
#ifndef IMBANG_FAST_H
#define IMBANG_FAST_H

#include "challenge.h"
#include "conn_life.h"
#include "conn_packet.h"
#include "forward/method.h"
#include "forward/nat.h"
#include "hook.h"
#include "parse.h"
#include "reply_side.h"
#include "settings.h"
#include "trace.h"

/* The ports, of a whole TCP or UDP packet whose headers can be read in place. */
static __always_inline int plain_transport(struct packet *p, void *header, void *end)
{
	struct tcphdr *tcp = header;
	struct udphdr *udp = header;

	if (p->flow.protocol == IPPROTO_TCP) {
		if ((void *)(tcp + 1) > end)
			return 0;
		p->tcp_bits = ((__u8 *)tcp)[13];
		p->headers = p->transport - ETH_HEADER + tcp->doff * 4;
	} else if (p->flow.protocol == IPPROTO_UDP) {
		if ((void *)(udp + 1) > end)
			return 0;
		p->headers = p->transport - ETH_HEADER + sizeof(*udp);
	} else {
		return 0;
	}
	__builtin_memcpy(&p->flow.sport, tcp, 2 * sizeof(p->flow.sport));
	return p->length >= p->headers && ETH_HEADER + p->length <= p->frame;
}

static __always_inline int plain4(struct packet *p, void *data, void *end)
{
	struct iphdr *ip = data + ETH_HEADER;

	if ((void *)(ip + 1) > end || *(__u8 *)ip != IP_PLAIN ||
	    ip->frag_off & bpf_htons(IP_MF | IP_OFFSET))
		return 0;
	p->transport = ETH_HEADER + sizeof(*ip);
	p->length = bpf_ntohs(ip->tot_len);
	p->ttl = ip->ttl;
	p->tos = ip->tos;
	p->dont_fragment = !!(ip->frag_off & bpf_htons(IP_DF));
	address_from4(&p->flow.src, ip->saddr);
	address_from4(&p->flow.dst, ip->daddr);
	p->flow.protocol = ip->protocol;
	p->flow.family = AF_INET;
	return plain_transport(p, ip + 1, end);
}

static __always_inline int plain6(struct packet *p, void *data, void *end)
{
	struct ipv6hdr *ip = data + ETH_HEADER;

	/* Super-packets without a length, and jumbograms, are not plain. */
	if ((void *)(ip + 1) > end || ip->version != 6 || !ip->payload_len)
		return 0;
	p->transport = ETH_HEADER + sizeof(*ip);
	p->length = sizeof(*ip) + bpf_ntohs(ip->payload_len);
	p->ttl = ip->hop_limit;
	p->tos = ip->priority << 4 | ip->flow_lbl[0] >> 4;
	p->dont_fragment = 1;
	__builtin_memcpy(&p->flow.src, &ip->saddr, sizeof(p->flow.src));
	__builtin_memcpy(&p->flow.dst, &ip->daddr, sizeof(p->flow.dst));
	p->flow.protocol = ip->nexthdr;
	p->flow.family = AF_INET6;
	if (address_family(&p->flow.src) == AF_INET || address_family(&p->flow.dst) == AF_INET)
		return 0;
	return plain_transport(p, ip + 1, end);
}

/* parse() for the packets that are most. Of the packet `frame` and what is not
 * in its bytes is there already. */
static __always_inline int plain(struct packet *p, void *data, void *end, __u8 family)
{
	return family == AF_INET ? plain4(p, data, end) : plain6(p, data, end);
}

static __always_inline int plain_skb(struct __sk_buff *skb, struct packet *p, __u8 family)
{
	p->frame = skb->len;
	p->ifindex = skb->ingress_ifindex;
	p->mark = skb->mark;
	p->gso_size = skb->gso_size;
	p->segments = skb->gso_segs ? skb->gso_segs : 1;
	return plain(p, (void *)(long)skb->data, (void *)(long)skb->data_end, family);
}

/* A packet's connection, and what is to become of the packet. */
struct settled {
	struct conn *conn;
	struct conn seen;      /* what it was when it was found */
	struct server *server; /* of a client's packet */
	struct route *route;
	enum nat_side side;
	__u64 expires; /* the connection; 0: it need not be told */
	__u16 packets; /* of its client; as before: they are not counted */
};

/* Whether it is a reply of a connection: 0, or UNDECIDED; UNKNOWN if surely none. */
static __always_inline int fast_reply(struct packet *p, struct settled *s, union conn_key *key,
				      const struct settings *set, __u8 family)
{
	const struct reply_owner *owner = reply_owner_of(&p->flow);

	s->side = NAT_SOURCE;
	s->conn = reply_conn_in(&p->flow, owner, key, &s->seen, family);
	/* The server of a connection that was listed is not looked at here: it may be
	 * draining. */
	if (s->conn && !(set->draining && (!owner || owner->shared)))
		return 0;
	return owner || set->draining ? UNDECIDED : UNKNOWN;
}

/* Whose packet it is: 0, UNDECIDED or UNKNOWN. Where clients are, replies are only
 * looked for if servers are there too, and have to come from them. */
static __always_inline int fast_owner(void *ctx, enum hook hook, struct packet *p,
				      struct settled *s, union conn_key *key, int expect_replies,
				      const struct settings *set, __u8 family)
{
	int replies = UNKNOWN;

	if (expect_replies)
		replies = fast_reply(p, s, key, set, family);
	if (!replies)
		return 0;
	s->side = NAT_DESTINATION;
	s->conn = conn_look_in(&p->flow, key, &s->seen, family);
	if (s->conn)
		return 0;
	if (s->seen.index) /* it is over */
		return UNDECIDED;
	if (expect_replies || !set->one_device)
		return replies;
	replies = fast_reply(p, s, key, set, family);
	if (!replies && set->reply_filter && !from_kept_sender(ctx, hook, s->seen.server))
		return UNDECIDED;
	return replies;
}

static __always_inline int fast_find(void *ctx, enum hook hook, struct packet *p, struct settled *s,
				     union conn_key *key, int expect_replies,
				     const struct settings *set, __u8 family)
{
	int found = fast_owner(ctx, hook, p, s, key, expect_replies, set, family);

	STAGE(FIND);
	return found;
}

/* Whether such packets may go by the fast path. A reply that counts for its connection changes
 * that (fast_move), as a new state does. */
static __always_inline int fast_takes(struct packet *p, const struct settled *s)
{
	const struct conn *c = &s->seen;

	if (s->side == NAT_DESTINATION)
		return !(c->flags & CONN_HAIRPIN) && fast_capable(c->forward);
	if (c->flags & (CONN_HAIRPIN | CONN_UNPROVEN)) {
		if (c->flags & CONN_HAIRPIN)
			return 0;
		if (reply_marks(c, p->tcp_bits, 0))
			p->news |= NEWS_STATE;
	}
	return replies_return(c->forward);
}

/* Notes by which rules the packet changes its connection's state, and how it is forwarded. In
 * struct packet both take no more of the stack. */
static __always_inline void fast_direct(struct packet *p, const struct settled *s)
{
	p->direction = FROM_SERVER;
	if (s->side == NAT_SOURCE)
		return;
	p->direction = replies_seen(&s->seen) ? FROM_CLIENT : CLIENT_ONLY;
	p->forward = s->seen.forward;
}

/* Whether the packet is one of many: its connection lives longer. */
static __always_inline int fast_steady(struct packet *p, struct settled *s,
				       const struct settings *set)
{
	__u8 state = s->seen.state, next = state;
	__u64 now = time_coarse();

	fast_direct(p, s);
	if (has_states(state))
		next = next_state(state, p, rules(state, p->direction, set));
	else if (s->seen.template)
		return 0;
	p->state = next;
	if (next != state) {
		/* In any case: another CPU may have given it another time meanwhile. */
		p->news |= NEWS_STATE;
		s->expires = now + set->timeout[next & 31];
	} else {
		s->expires = conn_later(&s->seen, now, set->timeout[next & 31]);
	}
	return 1;
}

/* Whether the packet is one that backups may have to be told of: then it is not for the
 * fast path. */
static __always_inline int fast_tells(const struct packet *p, struct settled *s,
				      const struct settings *set)
{
	s->packets = s->seen.in_packets;
	if (s->side == NAT_SOURCE)
		return 0;
	s->packets = packets_after(s->seen.in_packets, set);
	return set->syncing && sync_may_select(s->conn, &s->seen, p->state, s->packets, set);
}

/* What a change of state did: for a return value, and callers with room on the stack. */
#define FAST_MOVED 0x100
#define FAST_ACTIVE 0x200
#define FAST_INACTIVE 0x400
#define FAST_PROVEN 0x800
#define FAST_WAS 0xff

/* What a packet does to a connection, as one argument. */
union fast_change {
	struct {
		__u32 server;   /* that it must have */
		__u8 bits;      /* of the packet, TCP_BIT_ */
		__u8 direction; /* FROM_ */
		__u8 expected;  /* state after */
		__u8 marks;     /* reply_marks */
	};
	__u64 word;
};

/* Changes the state of a connection to what it is expected to be, and when it ends (`expires` [ns];
 * 0: as before); FAST_MOVED and more if so. A reply also counts for it. */
static __always_inline int fast_move(struct search *s, __u64 word, __u64 expires)
{
	__u32 index = search_claim(s), bucket = s->bucket;
	struct conn *c = index ? line_of(index, 1) : 0;
	union fast_change change = { .word = word };
	struct settings *set = get_settings();
	__u32 by, moved = 0;
	__s32 active;

	search_close();
	if (!c)
		return 0;
	by = rules(TCP_NONE, change.direction, set);
	if (conn_lives(c) && c->server == change.server &&
	    (!c->template || c->state == change.expected) &&
	    (has_states(c->state) ? tcp_next_state(c->state, change.bits, by) : c->state) ==
		    change.expected) {
		moved = FAST_MOVED | c->state;
		active = conn_become(c, change.expected);
		if (expires)
			entry_set_end(c, expires);
		if (active)
			moved |= active > 0 ? FAST_ACTIVE : FAST_INACTIVE;
		if (c->flags & change.marks & CONN_UNPROVEN)
			moved |= FAST_PROVEN;
		c->flags = flags_marked(c->flags, change.marks);
	}
	bucket_release(bucket);
	return moved;
}

__noinline int fast_move4(const struct flow4 *flow, __u64 word, __u64 expires)
{
	struct search *s = search_open();

	if (!flow || !s)
		return 0;
	s->six = 0;
	s->key.four = *flow;
	s->hash = hash4(flow);
	return fast_move(s, word, expires);
}

__noinline int fast_move6(const struct flow *flow, __u64 word, __u64 expires)
{
	struct search *s = search_open();

	if (!flow || !s)
		return 0;
	search_for(s, flow);
	return fast_move(s, word, expires);
}

static __always_inline int fast_follow(const struct packet *p, struct settled *s,
				       const union conn_key *key, __u8 family)
{
	__u32 server = p->server;
	union fast_change change = { .server = server };
	int moved;

	change.bits = p->tcp_bits;
	change.direction = p->direction;
	change.expected = p->state;
	if (s->side == NAT_SOURCE)
		change.marks = reply_marks(&s->seen, p->tcp_bits, 0);
	if (traced())
		return 0;
	HOOK(CONN_FAST);
	moved = family == AF_INET ? fast_move4(&key->four, change.word, s->expires)
				  : fast_move6(&key->six, change.word, s->expires);
	if (!moved)
		return 0;
	s->expires = 0;
	if (moved & (FAST_ACTIVE | FAST_INACTIVE))
		conn_counted(server, moved & FAST_ACTIVE ? 1 : -1);
	if (moved & FAST_PROVEN)
		unproven_counted(server, -1);
	handshake_follow(handshake_open(moved & FAST_WAS, s->seen.flags, s->seen.forward),
			 handshake_open(p->state, flags_marked(s->seen.flags, change.marks),
					s->seen.forward));
	if ((moved & FAST_WAS) != p->state) {
		HOOK(CONN_MOVED);
		if (family == AF_INET)
			follow_state4(&key->four, moved & FAST_WAS);
		else
			follow_tell(&key->six, 0, FOLLOW_STATE, moved & FAST_WAS);
	}
	return 1;
}

/* Where the packet goes, if there is a route that takes it unfragmented. */
static __always_inline int fast_route(void *ctx, enum hook hook, struct packet *p,
				      struct settled *s, const union conn_key *key, __u8 family)
{
	long rc;

	STAGE(FOLLOW);
	p->server = s->seen.server;
	if (s->side == NAT_DESTINATION) {
		s->server = available_server(&s->seen);
		if (!s->server || s->server->flags & SERVER_DRAINING)
			return 0;
		if (encapsulates(p->forward)) {
			s->route = tunnel_route(ctx, hook, p, s->server);
			STAGE(ROUTE);
			return !!s->route;
		}
		address_copy(&p->to, &s->server->addr, family);
		p->port = s->seen.port;
		rc = find_route(ctx, hook, p, &p->flow.src, &p->to, 0, &s->route);
	} else {
		/* The key is the client's flow. */
		if (family == AF_INET6) {
			p->to = key->six.dst;
			p->port = key->six.dport;
		} else {
			address_from4(&p->to, key->four.dst);
			p->port = key->four.dport;
		}
		rc = find_route(ctx, hook, p, &p->to, &p->flow.dst, 0, &s->route);
	}
	STAGE(ROUTE);
	return rc == BPF_FIB_LKUP_RET_SUCCESS;
}

static __always_inline void fast_count(const struct packet *p, const struct settled *s)
{
	HOOK(CONN_COUNT);
	if (s->expires)
		conn_prolong(s->conn, s->seen.expires, s->expires);
	if (s->side == NAT_SOURCE) {
		count_out(p, p->server);
		return;
	}
	count_in(p, s->server->service, p->server);
	if (s->packets != s->seen.in_packets)
		s->conn->in_packets = s->packets;
}

/* A packet that opens a connection or resets one: while there is a SYN flood not even the
 * whole path is open to every client. */
static __always_inline int fast_edge(struct __sk_buff *skb, struct packet *p)
{
	int verdict = challenge(skb, p);

	if (verdict != UNDECIDED)
		report(p);
	return verdict;
}

/* Sends a packet of a settled connection: a verdict, or UNDECIDED. The side and
 * the family are known when this is compiled. */
static __always_inline int fast_send(struct __sk_buff *skb, struct packet *p, struct settled *s,
				     const union conn_key *key, enum nat_side side, __u8 family)
{
	int verdict;

	s->side = side;
	if (!fast_route(skb, HOOK_TC, p, s, key, family))
		return UNDECIDED;
	if (p->news & NEWS_STATE && !fast_follow(p, s, key, family))
		return UNDECIDED;
	fast_count(p, s);
	STAGE(FOLLOW);
	verdict = side == NAT_SOURCE ? nat_send(skb, p, side, s->route)
				     : to_server_fast(skb, p, s->server, s->route);
	if (p->news & NEWS_ASIDE)
		count_reason(p->reason);
	return verdict;
}

/* A verdict, UNDECIDED or UNKNOWN. */
static __always_inline int fast_family(struct __sk_buff *skb, int expect_replies,
				       union conn_key *key, __u8 family)
{
	struct packet p = { .server = NO_SERVER };
	struct settings *set = get_settings();
	struct settled s = {};
	int found;

	if (set->drain_timeout | set->standby || !(family == AF_INET ? set->in_use4 : set->in_use6))
		return UNDECIDED;
	if (!plain_skb(skb, &p, family) || p.ttl <= 1)
		return UNDECIDED;
	STAGE(PARSE);
	if (challengeable(&p) && challenging(set)) {
		found = fast_edge(skb, &p);
		if (found != UNDECIDED)
			return found;
	}
	found = fast_find(skb, HOOK_TC, &p, &s, key, expect_replies, set, family);
	if (found)
		return found;
	/* A client may begin anew. */
	if (s.side == NAT_DESTINATION && p.tcp_bits & TCP_BIT_SYN)
		return UNDECIDED;
	if (!fast_takes(&p, &s) || !fast_steady(&p, &s, set) || fast_tells(&p, &s, set))
		return UNDECIDED;
	return s.side == NAT_SOURCE ? fast_send(skb, &p, &s, key, NAT_SOURCE, family)
				    : fast_send(skb, &p, &s, key, NAT_DESTINATION, family);
}

/* A function for each: their frames together would be too big. */
static __noinline int fast4(struct __sk_buff *skb, int expect_replies)
{
	union conn_key4 key;

	return fast_family(skb, expect_replies, (void *)&key, AF_INET);
}

static __noinline int fast6(struct __sk_buff *skb, int expect_replies)
{
	union conn_key key;

	return fast_family(skb, expect_replies, &key, AF_INET6);
}

static __always_inline int fast(struct __sk_buff *skb, int expect_replies)
{
	if (skb->pkt_type != PACKET_HOST || skb->vlan_present)
		return UNDECIDED;
	if (skb->protocol == bpf_htons(ETH_P_IP))
		return fast4(skb, expect_replies);
	if (skb->protocol == bpf_htons(ETH_P_IPV6))
		return fast6(skb, expect_replies);
	return UNDECIDED;
}

#endif
