// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where the packets of `imbang bench flood` come from: run again and again on
 * frames of a page pool (BPF_PROG_TEST_RUN with live frames), it writes a
 * datagram into each and sends it out of a device. The other end of a veth
 * device gets it as a NIC's driver would: a frame without a socket buffer.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "../csum.h"

#define FLOOD_BYTES 60 /* all of a shortest frame */

#define FIRST_PORT 1024
#define CLIENTS_SHIFT 15 /* clients' addresses: 2^15 */

/* user: what is sent. */
struct order {
	__u8 frame[FLOOD_BYTES]; /* of flow 0, IPv4 */
	__u32 device;
	__u32 targets; /* addresses from the frame's on, in rotation of flows */
	__u32 flows;   /* that take turns */
	__u32 next;    /* kernel: the flow whose turn it is */
	__u32 left;    /* kernel: packets; a run that a signal cut short begins anew */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct order);
} orders SEC(".maps");

/*
 * Writes all of a flow's frame: its pages come back as they were received,
 * with what the director changed there.
 */
static __always_inline void write_frame(void *data, const struct order *o, __u32 flow)
{
	struct iphdr *ip = data + sizeof(struct ethhdr);
	struct udphdr *udp = (void *)(ip + 1);
	__be16 *client = (__be16 *)&ip->saddr + 1, *to = (__be16 *)&ip->daddr;
	__u32 changed;

	__builtin_memcpy(data, o->frame, FLOOD_BYTES);
	/* RFC 1624: without what was, with what is. */
	changed = (__u16) ~*client + (__u16)~to[0] + (__u16)~to[1];
	*client = bpf_htons((flow & ((1 << CLIENTS_SHIFT) - 1)) + 1);
	ip->daddr = bpf_htonl(bpf_ntohl(ip->daddr) + flow % o->targets);
	changed += *client + to[0] + to[1];
	ip->check = csum_fold((__u16)~ip->check + changed);
	changed += (__u16)~udp->source;
	udp->source = bpf_htons(FIRST_PORT + (flow >> CLIENTS_SHIFT));
	changed += udp->source;
	/* RFC 768: zero says that there is none. */
	udp->check = csum_fold((__u16)~udp->check + changed) ?: 0xffff;
}

SEC("xdp")
int flood(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 zero = 0, flow;
	struct order *o = bpf_map_lookup_elem(&orders, &zero);

	if (!o || data + FLOOD_BYTES > end)
		return XDP_ABORTED;
	if (!o->left || ctx->ingress_ifindex == o->device)
		return XDP_DROP; /* all are sent, or it came in by the device */
	o->left--;
	flow = o->next;
	o->next = flow + 1 < o->flows ? flow + 1 : 0;
	write_frame(data, o, flow);
	return bpf_redirect(o->device, 0);
}

char _license[] SEC("license") = "GPL";
