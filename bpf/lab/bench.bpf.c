// SPDX-License-Identifier: GPL-2.0-only
/*
 * What `imbang bench packets` puts packets into the data plane with: run again
 * and again on one skb (BPF_PROG_TEST_RUN), it writes the next packet there and
 * goes on with a program of the data plane. Run without one, it costs what is
 * to be taken off.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Every frame begins with so many bytes; what is behind is not written. */
#define SCENE_BYTES 80

#define FIRST_PORT 1024
#define PORTS (1 << 15)  /* of an address */
#define SCENE_SERVERS 16 /* that take turns, at most */

/*
 * user: what is sent. A flow is a number, of which its addresses and ports are made.
 * Numbers of flows, addresses and services are powers of two.
 */
struct scene {
	__u8 frame[SCENE_BYTES];
	/* The first client's address (IPv6: its last word), host byte order. */
	__u32 first;
	__u32 flows;
	/* Clients' addresses, and what selects a flow's address and port. */
	__u32 addresses;
	__u32 address_shift;
	__u32 port_shift;
	/* Services are addresses from the frame's on; in replies, ports. */
	__u32 services;
	__u32 service_shift;
	/* Replies: of servers that take turns in each service, counted from the frame's
	 * address, in this order. */
	__u32 replies;
	__u32 servers;
	__u8 order[SCENE_SERVERS];
	/* kernel: packets so far. */
	__u32 turn;
} current_scene;

/* user: the program that is measured. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} targets SEC(".maps");

/* Writes a flow's addresses and ports: the last words of the addresses. */
static __always_inline void write_flow(const struct scene *s, __u32 n, __be32 *src, __be32 *dst,
				       struct udphdr *udp)
{
	__u32 address = s->first + (n >> s->address_shift & (s->addresses - 1));
	__u16 port = FIRST_PORT + (n >> s->port_shift & (PORTS - 1));
	__u32 service = n & (s->services - 1), turn;

	if (!s->replies) {
		*src = bpf_htonl(address);
		udp->source = bpf_htons(port);
		*dst = bpf_htonl(bpf_ntohl(*dst) + service);
		return;
	}
	turn = (n >> s->service_shift) % s->servers;
	*src = bpf_htonl(bpf_ntohl(*src) + s->order[turn & (SCENE_SERVERS - 1)]);
	udp->source = bpf_htons(bpf_ntohs(udp->source) + service);
	*dst = bpf_htonl(address);
	udp->dest = bpf_htons(port);
}

/* Writes the next packet. */
static __always_inline int next_packet(void *data, void *end)
{
	struct ethhdr *eth = data;
	struct scene *s = &current_scene;
	__u32 n;

	if (data + SCENE_BYTES > end)
		return -1;
	__builtin_memcpy(data, s->frame, SCENE_BYTES);
	n = s->turn++ & (s->flows - 1);
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = (void *)(eth + 1);

		write_flow(s, n, &ip->saddr, &ip->daddr, (void *)(ip + 1));
	} else {
		struct ipv6hdr *ip = (void *)(eth + 1);

		write_flow(s, n, &ip->saddr.s6_addr32[3], &ip->daddr.s6_addr32[3],
			   (void *)(ip + 1));
	}
	return 0;
}

SEC("tc")
int bench_packet(struct __sk_buff *skb)
{
	if (next_packet((void *)(long)skb->data, (void *)(long)skb->data_end))
		return -1;
	bpf_tail_call(skb, &targets, 0);
	return 0;
}

/* user: likewise, of type XDP. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} xdp_targets SEC(".maps");

SEC("xdp")
int bench_frame(struct xdp_md *ctx)
{
	if (next_packet((void *)(long)ctx->data, (void *)(long)ctx->data_end))
		return XDP_ABORTED;
	bpf_tail_call(ctx, &xdp_targets, 0);
	return XDP_ABORTED;
}

char _license[] SEC("license") = "GPL";
