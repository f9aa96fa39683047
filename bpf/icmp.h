/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ICMP errors (RFC 792) about a packet that cannot be forwarded, made of the
 * packet itself and sent back the way it came.
 */
#ifndef IMBANG_ICMP_H
#define IMBANG_ICMP_H

#include "counters.h"
#include "csum.h"

#define ICMP_DEST_UNREACH 3
#define ICMP_HOST_UNREACH 1
#define ICMP_PORT_UNREACH 3
#define ICMP_FRAG_NEEDED 4
#define ICMP_TIME_EXCEEDED 11
#define ICMP_EXC_TTL 0

/* An error message is at most 576 bytes long (RFC 1812, 4.3.2.3). */
#define ICMP_QUOTE 548
#define ICMP_CHUNK 32

struct icmp_header {
	__u8 type;
	__u8 code;
	__sum16 checksum;
	__be16 unused;
	__be16 mtu; /* of the next hop, in "fragmentation needed" (RFC 1191) */
};

struct icmp_frame {
	struct iphdr ip;
	struct icmp_header icmp;
};

struct icmp_sum {
	struct __sk_buff *skb;
	__u32 offset;
	__u32 left;
	__u32 sum;
};

static long icmp_sum_chunk(__u32 i, struct icmp_sum *s)
{
	__be32 chunk[ICMP_CHUNK / 4] = {};
	__u32 n = s->left;

	if (!n)
		return 1;
	if (n > ICMP_CHUNK)
		n = ICMP_CHUNK;
	/* Linux 6.1's verifier does not see that n is not 0. */
	asm volatile("" : "+r"(n));
	n = ((n - 1) & (ICMP_CHUNK - 1)) + 1;
	if (bpf_skb_load_bytes(s->skb, s->offset, chunk, n))
		return 1;
	s->sum = bpf_csum_diff(0, 0, chunk, sizeof(chunk), s->sum);
	s->offset += n;
	s->left -= n;
	return 0;
}

/*
 * Whether the packet's checksum is still to be filled in by the device that
 * sends it on: then the checksum field holds the sum of the pseudo header, and
 * the filled-in packet will add up to the complement of that.
 */
static __always_inline int checksum_pending(struct __sk_buff *skb, const struct iphdr *ip,
					    __u16 *pseudo)
{
	__u32 header = (ip->ihl & 15) * 4;
	__u32 length = ip->tot_len ? bpf_ntohs(ip->tot_len) : skb->len - ETH_HEADER;
	__u32 at = ETH_HEADER + header +
		   (ip->protocol == IPPROTO_TCP ? offsetof(struct tcphdr, check)
						: offsetof(struct udphdr, check));
	__u32 sum = bpf_htons(ip->protocol) + bpf_htons(length - header);
	__u16 check;

	sum += (ip->saddr & 0xffff) + (ip->saddr >> 16) + (ip->daddr & 0xffff) + (ip->daddr >> 16);
	*pseudo = ~csum_fold(sum);
	return !bpf_skb_load_bytes(skb, at, &check, sizeof(check)) && check == *pseudo;
}

/* Turns the packet into an error about itself and sends it back: the sender
 * is the address that the packet was for. */
static __noinline int icmp_answer(struct __sk_buff *skb, __u8 type, __u8 code, __u32 mtu,
				  __u32 length)
{
	struct icmp_sum sum = { .skb = skb, .offset = ETH_HEADER + sizeof(struct icmp_frame) };
	struct icmp_frame frame = {};
	struct ethhdr eth;
	__u8 mac[ETH_ALEN];
	struct iphdr old;
	__u32 quote = length;
	__be32 *words = (__be32 *)&frame.ip;
	__u16 pseudo = 0;
	int pending;

	/* Without a length (BIG TCP) the frame's own counts. */
	if (!quote)
		quote = skb->len - ETH_HEADER;
	if (quote > ICMP_QUOTE)
		quote = ICMP_QUOTE;
	if (bpf_skb_load_bytes(skb, ETH_HEADER, &old, sizeof(old)))
		return -1;
	pending = checksum_pending(skb, &old, &pseudo);
	if (bpf_skb_change_tail(skb, ETH_HEADER + quote, 0) ||
	    bpf_skb_adjust_room(skb, sizeof(frame), BPF_ADJ_ROOM_MAC, 0))
		return -1;

	frame.icmp.type = type;
	frame.icmp.code = code;
	frame.icmp.mtu = bpf_htons(mtu);
	sum.sum = bpf_csum_diff(0, 0, (__be32 *)&frame.icmp, sizeof(frame.icmp),
				pending ? (__u16)~pseudo : 0);
	/* What is pending is known already, and not to be read yet. */
	sum.left = pending ? (old.ihl & 15) * 4 : quote;
	bpf_loop(ICMP_QUOTE / ICMP_CHUNK + 1, icmp_sum_chunk, &sum, 0);
	if (sum.left)
		return -1;
	frame.icmp.checksum = csum_fold(sum.sum);

	frame.ip.version = 4;
	frame.ip.ihl = 5;
	frame.ip.tos = 0xc0; /* internetwork control (RFC 1812, 4.3.2.5) */
	frame.ip.tot_len = bpf_htons(sizeof(frame) + quote);
	frame.ip.ttl = 64;
	frame.ip.protocol = IPPROTO_ICMP;
	frame.ip.saddr = old.daddr;
	frame.ip.daddr = old.saddr;
	frame.ip.check = csum_fold(bpf_csum_diff(0, 0, words, sizeof(frame.ip), 0));
	if (bpf_skb_store_bytes(skb, ETH_HEADER, &frame, sizeof(frame), 0))
		return -1;

	if (bpf_skb_load_bytes(skb, 0, &eth, sizeof(eth)))
		return -1;
	__builtin_memcpy(mac, eth.h_dest, ETH_ALEN);
	__builtin_memcpy(eth.h_dest, eth.h_source, ETH_ALEN);
	__builtin_memcpy(eth.h_source, mac, ETH_ALEN);
	if (bpf_skb_store_bytes(skb, 0, &eth, sizeof(eth), 0))
		return -1;
	return 0;
}

/* One error a second for each sender, after six at once (net.ipv4.icmp_ratelimit
 * and inet_peer_xrlim_allow); path MTU discovery is not limited. */
#define ICMP_INTERVAL NSEC_PER_SEC
#define ICMP_BURST (6 * ICMP_INTERVAL)

static __noinline int icmp_allowed(__be32 sender)
{
	struct allowance fresh = { .saved = ICMP_BURST - ICMP_INTERVAL }, *a;
	__u64 now = bpf_ktime_get_coarse_ns(), saved;

	a = bpf_map_lookup_elem(&allowances, &sender);
	if (!a) {
		fresh.last = now;
		bpf_map_update_elem(&allowances, &sender, &fresh, BPF_ANY);
		return 1;
	}
	saved = a->saved + (now - a->last);
	if (saved > ICMP_BURST)
		saved = ICMP_BURST;
	a->last = now;
	a->saved = saved < ICMP_INTERVAL ? saved : saved - ICMP_INTERVAL;
	return saved >= ICMP_INTERVAL;
}

static __always_inline int icmp_error(struct packet *p, __u8 type, __u8 code, __u32 mtu,
				      __u32 reason)
{
	struct __sk_buff *skb = p->skb;

	if (!(type == ICMP_DEST_UNREACH && code == ICMP_FRAG_NEEDED) && !icmp_allowed(p->flow.src))
		return drop(REASON_DROP_RATE_LIMIT);
	count_reason(reason);
	if (icmp_answer(skb, type, code, mtu, p->length))
		return drop(REASON_DROP_REWRITE);
	return bpf_redirect(skb->ingress_ifindex, 0);
}

#endif
