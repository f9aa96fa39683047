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
#define PORTS_SHIFT 15 /* ports of an address: 2^15 */

/* user: what is sent. */
struct scene {
	__u8 frame[SCENE_BYTES];
	__u32 first; /* client address (IPv6: its last word), host byte order */
	__u32 flows; /* a power of two; each is a port of an address */
	__u32 turn;  /* kernel: packets so far */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scene);
} scenes SEC(".maps");

/* user: the program that is measured. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} targets SEC(".maps");

/* Writes the next packet. */
static __always_inline int next_packet(void *data, void *end)
{
	struct ethhdr *eth = data;
	__u32 zero = 0, n;
	struct scene *s = bpf_map_lookup_elem(&scenes, &zero);

	if (!s || data + SCENE_BYTES > end)
		return -1;
	__builtin_memcpy(data, s->frame, SCENE_BYTES);
	n = s->turn++ & (s->flows - 1);
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = (void *)(eth + 1);
		struct udphdr *udp = (void *)(ip + 1);

		ip->saddr = bpf_htonl(s->first + (n >> PORTS_SHIFT));
		udp->source = bpf_htons(FIRST_PORT + (n & ((1 << PORTS_SHIFT) - 1)));
	} else {
		struct ipv6hdr *ip = (void *)(eth + 1);
		struct udphdr *udp = (void *)(ip + 1);

		ip->saddr.s6_addr32[3] = bpf_htonl(s->first + (n >> PORTS_SHIFT));
		udp->source = bpf_htons(FIRST_PORT + (n & ((1 << PORTS_SHIFT) - 1)));
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
