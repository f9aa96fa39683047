/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a pair of directors needs of the data plane.
 *
 * A grace period after a takeover: packets of unknown connections that do not open one, and
 * servers' replies without a connection, are dropped, not passed to the stack, which would
 * reset them. Their connection may be told of a moment later, or the packet is on its way
 * to the director that has it.
 *
 * Handing over after a planned move: the same packets are sent to the director that had the
 * addresses before, on the device that they came in by. It forwards those of connections
 * that it has. What came from there is not sent back. Each hand-over takes a hop.
 *
 * Other directors' packets: directors that are servers of each other (direct routing) do not
 * schedule what another one sent them.
 *
 * Guarded addresses: the kernel answers ARP (RFC 826) and neighbour solicitations (RFC 4861,
 * 4.3) for them, and announces them, only while their group's lease is fresh, which the
 * process that elects the master renews. A director whose processes are dead, and whose
 * kernel still has the addresses, is silent then. Other packets from such an address, which
 * teach switches nothing but the host's own hardware address, leave.
 */
#ifndef IMBANG_FAILOVER_H
#define IMBANG_FAILOVER_H

#include "clock.h"
#include "conn_packet.h"
#include "find.h"
#include "forward/out.h"
#include "packet.h"
#include "pair.h"
#include "parse.h"
#include "replies.h"
#include "service.h"
#include "steer.h"

/* An ARP packet of Ethernet and IPv4 (RFC 826). */
struct arp_packet {
	__be16 hardware;
	__be16 protocol;
	__u8 hardware_size;
	__u8 protocol_size;
	__be16 operation;
	__u8 sender_hardware[6];
	__be32 sender;
	__u8 target_hardware[6];
	__be32 target;
} __attribute__((packed));

#define ARP_REQUEST 1
#define ND_SOLICITATION 135
#define ND_ADVERTISEMENT 136
#define ND_HOP_LIMIT 255 /* RFC 4861, 7.1: others are no messages of it */

/* Solicitation and advertisement alike. */
struct nd_message {
	__u8 type;
	__u8 code;
	__be16 checksum;
	__be32 flags;
	union address target;
};

/* Behind an Ethernet header whose type is that of a tag. */
struct vlan_tag {
	__be16 tci;
	__be16 type; /* of what is behind it */
};

/* Whether there is anything to do for packets of unknown connections. Behind the end it costs
 * no look at the clock any more. A process that writes a later end meanwhile is not undone. */
static __always_inline int failover_works(void)
{
	__u32 i = FAILOVER_WORKS;
	__u64 *w = bpf_map_lookup_elem(&failover_words, &i);
	__u64 until = w ? *(volatile __u64 *)w : 0;

	if (!until)
		return 0;
	if (until > now_boot_ns())
		return 1;
	__sync_val_compare_and_swap(w, until, 0);
	return 0;
}

/* failover_later's: what becomes of the packet is decided once it has an skb. */
#define LEFT (-11)

/* Whether a packet is a server's that may be a reply: of the address and port of one, or of
 * the address alone of one that replies from others, too. */
static __always_inline int of_a_server(const struct packet *p)
{
	union address source = p->flow.src; /* keys of Linux 6.1 lie on the stack */

	return reply_owner_of(&p->flow) || bpf_map_lookup_elem(&reply_addresses, &source);
}

/* Whether a client's packet opens a connection whatever the settings. One that would be
 * scheduled with sloppy_tcp or sloppy_sctp is of an earlier connection first. */
static __always_inline int surely_opens(const struct packet *p)
{
	if (p->flow.protocol == IPPROTO_UDP)
		return 1;
	return opens_connection(p) &&
	       !(p->flow.protocol == IPPROTO_TCP && p->tcp_bits & TCP_BIT_RST);
}

/* Whether a packet of no connection that is known here may be of one that another director
 * has. */
__noinline int may_be_anothers(const struct packet *p)
{
	struct settings *set = get_settings();
	struct service *svc;
	struct flow client = {};
	struct conn seen = {};

	if (!p || p->peek || p->outdated)
		return 0;
	if (of_a_server(p))
		return !begins(p) && !reply_conn(&p->flow, &client, &seen);
	return !surely_opens(p) && service_wanted(p, set, &svc) != SERVICE_NONE;
}

#define SOCKET_LISTENS 10 /* TCP_LISTEN of include/net/tcp_states.h */

/* Whether the kernel has no route on for a packet: it is for this host, or for none. */
static __noinline int for_this_host(struct __sk_buff *skb, const struct packet *p)
{
	struct bpf_fib_lookup fib = { .family = p->flow.family, .ifindex = p->ifindex };

	if (p->flow.family == AF_INET) {
		fib.ipv4_src = address_to4(&p->flow.src);
		fib.ipv4_dst = address_to4(&p->flow.dst);
	} else {
		__builtin_memcpy(fib.ipv6_src, &p->flow.src, sizeof(p->flow.src));
		__builtin_memcpy(fib.ipv6_dst, &p->flow.dst, sizeof(p->flow.dst));
	}
	switch (bpf_fib_lookup(skb, &fib, sizeof(fib), BPF_FIB_LOOKUP_SKIP_NEIGH)) {
	case BPF_FIB_LKUP_RET_NOT_FWDED:
	case BPF_FIB_LKUP_RET_FWD_DISABLED: /* it forwards nothing */
		return 1;
	}
	return 0;
}

/* Whether a socket is bound to an address. */
static __always_inline int socket_is_bound(const struct bpf_sock *socket)
{
	if (socket->family == AF_INET)
		return !!socket->src_ip4;
	return !!(socket->src_ip6[0] | socket->src_ip6[1] | socket->src_ip6[2] |
		  socket->src_ip6[3]);
}

/* Whether a socket of this host has the packet's flow: a health check's, for example. One
 * that listens has none. The kernel finds a socket that is bound to no address for packets
 * to any address, also for those that are not this host's. */
__noinline int has_socket(struct __sk_buff *skb, const struct packet *p)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *socket;
	__u32 size = sizeof(tuple.ipv4);
	int has;

	if (!p)
		return 0;
	if (p->flow.family == AF_INET) {
		tuple.ipv4.saddr = address_to4(&p->flow.src);
		tuple.ipv4.daddr = address_to4(&p->flow.dst);
		tuple.ipv4.sport = p->flow.sport;
		tuple.ipv4.dport = p->flow.dport;
	} else {
		__builtin_memcpy(tuple.ipv6.saddr, &p->flow.src, sizeof(p->flow.src));
		__builtin_memcpy(tuple.ipv6.daddr, &p->flow.dst, sizeof(p->flow.dst));
		tuple.ipv6.sport = p->flow.sport;
		tuple.ipv6.dport = p->flow.dport;
		size = sizeof(tuple.ipv6);
	}
	if (p->flow.protocol == IPPROTO_UDP) {
		socket = bpf_sk_lookup_udp(skb, &tuple, size, BPF_F_CURRENT_NETNS, 0);
		if (!socket)
			return 0;
		has = socket_is_bound(socket);
		bpf_sk_release(socket);
		return has || for_this_host(skb, p);
	}
	if (p->flow.protocol != IPPROTO_TCP)
		return 0;
	socket = bpf_skc_lookup_tcp(skb, &tuple, size, BPF_F_CURRENT_NETNS, 0);
	if (!socket)
		return 0;
	has = socket->state != SOCKET_LISTENS;
	bpf_sk_release(socket);
	return has;
}

/* Whether a packet is to be sent to the peer of the device that it came in by. */
__noinline int to_be_handed(struct __sk_buff *skb, const struct packet *p)
{
	__u8 from[ETH_ALEN] __attribute__((aligned(2)));
	struct hand_over *h;
	__u32 ifindex;

	if (!p)
		return 0;
	ifindex = p->ifindex;
	h = bpf_map_lookup_elem(&hand_overs, &ifindex);
	return h && h->until > now_boot_ns() && !source_mac(skb, from) && !mac_equal(from, h->mac);
}

/* A packet of no connection that is known here: a decision, or UNDECIDED. A datagram of a
 * server's may be its own, and is no reason for a reset: it passes in a grace period. */
__noinline int failover_decides(struct __sk_buff *skb, struct packet *p)
{
	__u64 grace = failover_word(FAILOVER_GRACE), hand = failover_word(FAILOVER_HAND);
	__u64 now;

	if (!p || !(grace | hand))
		return UNDECIDED;
	now = now_boot_ns();
	if (p->flow.protocol == IPPROTO_UDP)
		grace = 0;
	if ((grace <= now && hand <= now) || !may_be_anothers(p) || has_socket(skb, p))
		return UNDECIDED;
	/* The director that would get it takes it for a reply. */
	if (of_a_server(p) && !from_side_of(skb, p, &p->flow.src, NO_SERVER))
		return drop(p, REASON_DROP_REVERSE_PATH);
	if (hand > now && to_be_handed(skb, p))
		return HANDED;
	return grace > now ? drop(p, REASON_DROP_TAKEOVER) : UNDECIDED;
}

/* Likewise, of a packet that is ahead: LEFT, or UNDECIDED. */
__noinline int failover_later(const struct packet *p)
{
	__u64 until = failover_word(FAILOVER_GRACE), hand = failover_word(FAILOVER_HAND);

	if (failover_word(FAILOVER_PEERS))
		return LEFT;
	if (hand > until)
		until = hand;
	return until && until > now_boot_ns() && may_be_anothers(p) ? LEFT : UNDECIDED;
}

/* from_peer, while there are any. */
static __always_inline int sent_by_peer(struct __sk_buff *skb, const struct packet *p)
{
	return failover_works() && failover_word(FAILOVER_PEERS) && from_peer(skb, p);
}

/* Sends a packet to the director that may have its connection, as it came, but one hop
 * further: directors that hand it on in a circle come to an end. */
__noinline int hand_on(struct __sk_buff *skb, struct packet *p)
{
	struct ethhdr *eth;
	struct hand_over *h;
	__u32 ifindex;

	if (!p)
		return VERDICT_DROP;
	ifindex = p->ifindex;
	h = bpf_map_lookup_elem(&hand_overs, &ifindex);
	if (!h || p->ttl <= 1 || take_hop(skb, p))
		return drop(p, REASON_DROP_TAKEOVER);
	eth = (void *)(long)skb->data;
	if ((void *)(eth + 1) > (void *)(long)skb->data_end)
		return drop(p, REASON_DROP_TAKEOVER);
	mac_copy(eth->h_source, eth->h_dest); /* it was for this host */
	mac_copy(eth->h_dest, h->mac);
	turn_aside(p, REASON_HANDED_TAKEOVER);
	return bpf_redirect(ifindex, 0);
}

/* Whether the director only keeps what a master tells it, and passes what clients send
 * (sysctl_backup_only). */
static __always_inline int stands_by(struct settings *set)
{
	if (!set->standby)
		return 0;
	if (failover_word(FAILOVER_BACKUP) > now_boot_ns())
		return 1;
	set->standby = 0; /* its process was killed: the fast path works again */
	return 0;
}

/* A packet of a director that stands by: replies of connections go on, as in Linux, and those
 * of checks. */
__noinline int stand_by(struct __sk_buff *skb, struct packet *p)
{
	int decision = UNDECIDED;

	if (!p)
		return VERDICT_DROP;
	if (!is_icmp(p) && p->part != LATER_PART)
		decision = find_reply(skb, p);
	if (decision == UNDECIDED)
		decision = steer_in(skb, p);
	return decision == UNDECIDED ? pass(p, REASON_PASS_BACKUP) : decision;
}

/* What a frame carries, and where it begins. */
struct guard_view {
	__u32 at;
	__be16 type;
};

/* The hook may come before the stack sorts frames into VLANs: one tag is in the skb then, and
 * one may be left in the frame. */
static __always_inline struct guard_view guard_view(struct __sk_buff *skb)
{
	struct guard_view v = { .at = ETH_HEADER, .type = skb->protocol };
	struct vlan_tag tag;

	if ((v.type == bpf_htons(ETH_P_8021Q) || v.type == bpf_htons(ETH_P_8021AD)) &&
	    !bpf_skb_load_bytes(skb, v.at, &tag, sizeof(tag))) {
		v.at += sizeof(tag);
		v.type = tag.type;
	}
	return v;
}

static __always_inline int guard_arp(struct __sk_buff *skb, __u32 at, struct arp_packet *arp)
{
	return bpf_skb_load_bytes(skb, at, arp, sizeof(*arp)) ||
	       arp->protocol != bpf_htons(ETH_P_IP) || arp->protocol_size != sizeof(arp->target) ||
	       arp->hardware_size != ETH_ALEN;
}

/* A message of neighbour discovery, behind extension headers or none. The kernel accepts
 * none in fragments (RFC 6980). */
static __always_inline int guard_nd(struct __sk_buff *skb, __u32 at, struct ipv6hdr *ip,
				    struct nd_message *nd)
{
	struct extensions e = { .skb = skb };

	if (bpf_skb_load_bytes(skb, at, ip, sizeof(*ip)) || ip->hop_limit != ND_HOP_LIMIT)
		return -1;
	e.offset = at + sizeof(*ip);
	e.next = ip->nexthdr;
	if (e.next != IPPROTO_ICMPV6)
		bpf_loop(MAX_EXTENSIONS, parse_extension, &e, 0);
	return e.next != IPPROTO_ICMPV6 || bpf_skb_load_bytes(skb, e.offset, nd, sizeof(*nd));
}

/* Whether a packet asks for the hardware address of a guarded address whose lease is over. A
 * request from the address itself tells of the host that has it. */
__noinline int guard_refuses(struct __sk_buff *skb)
{
	struct guard_view v = guard_view(skb);
	union address target;
	struct arp_packet arp;
	struct nd_message nd;
	struct ipv6hdr ip;

	if (v.type == bpf_htons(ETH_P_ARP)) {
		if (guard_arp(skb, v.at, &arp) || arp.operation != bpf_htons(ARP_REQUEST) ||
		    arp.sender == arp.target)
			return 0;
		address_from4(&target, arp.target);
		return guard_is_stale(&target);
	}
	if (v.type != bpf_htons(ETH_P_IPV6) || guard_nd(skb, v.at, &ip, &nd) ||
	    nd.type != ND_SOLICITATION)
		return 0;
	return guard_is_stale(&nd.target);
}

/* Whether a packet of this host's announces such an address: an ARP packet or a solicitation
 * from it, or an advertisement of it. */
__noinline int guard_silences(struct __sk_buff *skb)
{
	struct guard_view v = guard_view(skb);
	union address source;
	struct arp_packet arp;
	struct nd_message nd;
	struct ipv6hdr ip;

	if (v.type == bpf_htons(ETH_P_ARP)) {
		if (guard_arp(skb, v.at, &arp))
			return 0;
		address_from4(&source, arp.sender);
		return guard_is_stale(&source);
	}
	if (v.type != bpf_htons(ETH_P_IPV6) || guard_nd(skb, v.at, &ip, &nd))
		return 0;
	if (nd.type == ND_ADVERTISEMENT)
		return guard_is_stale(&nd.target);
	if (nd.type != ND_SOLICITATION)
		return 0;
	__builtin_memcpy(&source, &ip.saddr, sizeof(source));
	return guard_is_stale(&source);
}

/* guard_refuses, while any address is guarded. */
static __always_inline int guard(struct __sk_buff *skb)
{
	return failover_word(FAILOVER_GUARDS) && guard_refuses(skb);
}

/* guard_silences, likewise. */
static __always_inline int guard_out(struct __sk_buff *skb)
{
	return failover_word(FAILOVER_GUARDS) && guard_silences(skb);
}

#endif
