// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where the packets of `imbang bench flood` end: drops every one as soon as it
 * comes in, and counts it by the address that it was sent to. It stands for the
 * real servers, and on the director's own device for a director that does
 * nothing.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define SAMPLES 64
#define SAMPLE_BYTES 60 /* all of a shortest frame */

/* kernel: what came in. */
struct tally {
	__u64 packets;
	__u64 strange; /* no IPv4 */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tally);
} total SEC(".maps");

/* kernel: packets by the last two bytes of their destination. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1 << 16);
	__type(key, __u32);
	__type(value, __u64);
} arrived SEC(".maps");

/* kernel: the first frames, to be looked at. */
struct sample {
	__u8 frame[SAMPLE_BYTES];
} samples[SAMPLES];

static __u32 taken; /* kernel: samples, by all CPUs */

/* The data of a packet, from its Ethernet header on. */
static __always_inline void count(void *data, void *end)
{
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);
	__u32 zero = 0, key;
	struct tally *t = bpf_map_lookup_elem(&total, &zero);
	__u64 *packets;

	if (!t)
		return;
	/* No CPU need look at what all have taken after so many of its own. */
	if (t->packets++ < SAMPLES && data + SAMPLE_BYTES <= end) {
		key = __sync_fetch_and_add(&taken, 1);
		if (key < SAMPLES)
			__builtin_memcpy(samples[key].frame, data, SAMPLE_BYTES);
	}
	if ((void *)(ip + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP)) {
		t->strange++;
		return;
	}
	key = bpf_ntohl(ip->daddr) & 0xffff;
	packets = bpf_map_lookup_elem(&arrived, &key);
	if (packets)
		(*packets)++;
}

SEC("tc")
int sink_tc(struct __sk_buff *skb)
{
	count((void *)(long)skb->data, (void *)(long)skb->data_end);
	return TC_ACT_SHOT;
}

SEC("xdp")
int sink_xdp(struct xdp_md *xdp)
{
	count((void *)(long)xdp->data, (void *)(long)xdp->data_end);
	return XDP_DROP;
}

char _license[] SEC("license") = "GPL";
