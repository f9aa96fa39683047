/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Two things that a pair of directors needs of the data plane.
 *
 * A grace period after a takeover: packets of unknown connections that do not open one, and
 * servers' replies without a connection, are dropped, not passed to the stack, which would
 * reset them. Their connection may be told of a moment later, or the packet is on its way
 * to the director that has it.
 *
 * Guarded addresses: the kernel answers ARP (RFC 826) and neighbour solicitations (RFC 4861,
 * 4.3) for them only while their group's lease is fresh, which the process that elects the
 * master renews. A director whose processes are dead, and whose kernel still has the
 * addresses, is silent then.
 */
#ifndef IMBANG_FAILOVER_H
#define IMBANG_FAILOVER_H

#include "clock.h"
#include "conn_packet.h"
#include "packet.h"
#include "replies.h"
#include "service.h"

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

struct nd_solicitation {
	__u8 type;
	__u8 code;
	__be16 checksum;
	__be32 reserved;
	union address target;
};

static __always_inline struct failover_state *get_failover(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&failover, &zero);
}

/* Whether a packet of no known connection may be of one that the former master has. */
__noinline int in_grace(const struct packet *p)
{
	struct failover_state *f = get_failover();
	struct settings *set = get_settings();
	struct service *svc;
	struct flow client;
	struct conn seen;

	if (!p || !f || !set || p->peek || !f->grace_until || f->grace_until < now_coarse_ns())
		return 0;
	if (reply_owner_of(&p->flow))
		return !reply_conn(&p->flow, &client, &seen);
	if (p->flow.protocol == IPPROTO_UDP || opens_connection(p))
		return 0; /* each packet of UDP opens one */
	return service_wanted(p, set, &svc) != SERVICE_NONE;
}

static __always_inline int guard_asks4(struct __sk_buff *skb, union address *target)
{
	struct arp_packet arp;

	if (bpf_skb_load_bytes(skb, ETH_HEADER, &arp, sizeof(arp)) ||
	    arp.operation != bpf_htons(ARP_REQUEST) || arp.protocol != bpf_htons(ETH_P_IP) ||
	    arp.protocol_size != sizeof(arp.target) || arp.hardware_size != 6)
		return 0;
	address_from4(target, arp.target);
	return 1;
}

static __always_inline int guard_asks6(struct __sk_buff *skb, union address *target)
{
	__u32 at = ETH_HEADER + sizeof(struct ipv6hdr);
	struct nd_solicitation nd;
	__u8 next;

	/* One behind an extension header is not recognised, and reaches the kernel. */
	if (bpf_skb_load_bytes(skb, ETH_HEADER + offsetof(struct ipv6hdr, nexthdr), &next, 1) ||
	    next != IPPROTO_ICMPV6 || bpf_skb_load_bytes(skb, at, &nd, sizeof(nd)) ||
	    nd.type != ND_SOLICITATION)
		return 0;
	*target = nd.target;
	return 1;
}

/* Whether a packet asks for the hardware address of a guarded address whose lease is over. */
__noinline int guard_refuses(struct __sk_buff *skb)
{
	union address target = {};
	__u32 *group;
	__u64 *lease;
	int asks;

	if (skb->protocol == bpf_htons(ETH_P_ARP))
		asks = guard_asks4(skb, &target);
	else
		asks = skb->protocol == bpf_htons(ETH_P_IPV6) && guard_asks6(skb, &target);
	group = asks ? bpf_map_lookup_elem(&guarded, &target) : 0;
	lease = group ? bpf_map_lookup_elem(&address_leases, group) : 0;
	return lease && *(volatile __u64 *)lease < now_coarse_ns();
}

/* The same, while any address is guarded. */
static __always_inline int guard(struct __sk_buff *skb)
{
	struct failover_state *f = get_failover();

	return f && f->guards && guard_refuses(skb);
}

#endif
