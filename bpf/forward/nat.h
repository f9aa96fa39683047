/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Masquerading (LVS-NAT): the client's packets get the server's address and
 * port, the server's answers those of the virtual service.
 */
#ifndef IMBANG_FORWARD_NAT_H
#define IMBANG_FORWARD_NAT_H

#include "../csum.h"
#include "../packet.h"

enum nat_side { NAT_DESTINATION, NAT_SOURCE };

#define OFFSET_OF_CHECK(proto) \
	((proto) == IPPROTO_TCP ? offsetof(struct tcphdr, check) : offsetof(struct udphdr, check))

/*
 * Replaces one side's address and port, and takes one hop off the TTL.
 * Returns 0, or an error if the packet cannot be written.
 */
static __always_inline int nat_rewrite(struct packet *p, enum nat_side side, __be32 addr,
				       __be16 port)
{
	struct __sk_buff *skb = p->skb;
	__u32 check = p->transport + OFFSET_OF_CHECK(p->flow.protocol);
	/* An UDP checksum of zero means none (RFC 768). */
	__u64 flags = p->flow.protocol == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0;
	__be32 old_addr = side == NAT_DESTINATION ? p->flow.dst : p->flow.src;
	__be16 old_port = side == NAT_DESTINATION ? p->flow.dport : p->flow.sport;
	__u32 at = p->transport & 0x7f;
	void *data, *end;
	struct iphdr *ip;
	__be16 *ports;

	/* The pseudo header is part even of a checksum still to be filled in
	 * by the hardware, the ports are not: two calls. */
	if (bpf_l4_csum_replace(skb, check, old_addr, addr,
				flags | BPF_F_PSEUDO_HDR | sizeof(addr)))
		return -1;
	if (port != old_port &&
	    bpf_l4_csum_replace(skb, check, old_port, port, flags | sizeof(port)))
		return -1;

	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	ip = data + ETH_HEADER;
	ports = data + at;
	if ((void *)(ip + 1) > end || (void *)(ports + 2) > end)
		return -1;
	if (side == NAT_DESTINATION) {
		ip->daddr = addr;
		ports[1] = port;
	} else {
		ip->saddr = addr;
		ports[0] = port;
	}
	csum_replace4(&ip->check, old_addr, addr);
	/* TTL is the first byte of its 16-bit word. */
	csum_replace2(&ip->check, bpf_htons(p->ttl << 8), bpf_htons((p->ttl - 1) << 8));
	ip->ttl = p->ttl - 1;
	return 0;
}

#endif
