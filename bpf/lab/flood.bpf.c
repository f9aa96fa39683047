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
#define LARGE_ONES 10 /* one packet of so many */

/* user: what is sent. */
struct order {
	__u8 frame[FLOOD_BYTES]; /* of flow 0, IPv4 */
	__u32 device;
	__u32 targets;     /* addresses from the frame's on, in rotation of flows */
	__u32 client_bits; /* clients' addresses: 2 to the power of that */
	__u32 replies;     /* the frame is a server's, to one client after the other */
	__u32 large;       /* bytes of one frame of LARGE_ONES; 0: all are short */
	__u32 flows;       /* that take turns */
	__u32 next;        /* kernel: the flow whose turn it is */
	__u32 left;        /* kernel: packets; a run that a signal cut short begins anew */
} current_order;

/* The sum of an address in a checksum. */
static __always_inline __u32 words(__be32 address)
{
	return (address & 0xffff) + (address >> 16);
}

/* An address with the last two bytes of a flow's client. */
static __always_inline __be32 client_in(__be32 address, const struct order *o, __u32 flow)
{
	__u32 last = (flow & ((1 << (o->client_bits & 15)) - 1)) + 1;

	return bpf_htonl((bpf_ntohl(address) & 0xffff0000) | last);
}

/*
 * Writes all of a flow's headers: its pages come back as they were received,
 * with what the director changed there. Behind the shortest frame there are zeros.
 */
static __always_inline void write_frame(void *data, const struct order *o, __u32 flow, __u32 bytes)
{
	struct iphdr *ip = data + sizeof(struct ethhdr);
	struct udphdr *udp = (void *)(ip + 1);
	__u16 port = FIRST_PORT + (flow >> (o->client_bits & 15)), more = bytes - FLOOD_BYTES;
	__u32 changed, lengths;

	__builtin_memcpy(data, o->frame, FLOOD_BYTES);
	/* RFC 1624: without what was, with what is. */
	changed = words(~ip->saddr) + words(~ip->daddr);
	lengths = (__u16)~ip->tot_len;
	ip->tot_len = bpf_htons(bpf_ntohs(ip->tot_len) + more);
	lengths += ip->tot_len;
	if (o->replies) {
		ip->daddr = client_in(ip->daddr, o, flow);
	} else {
		ip->saddr = client_in(ip->saddr, o, flow);
		ip->daddr = bpf_htonl(bpf_ntohl(ip->daddr) + flow % o->targets);
	}
	changed += words(ip->saddr) + words(ip->daddr);
	ip->check = csum_fold((__u16)~ip->check + changed + lengths);
	/* The length counts twice, as that of the pseudo header. */
	changed += 2 * (__u16)~udp->len;
	udp->len = bpf_htons(bpf_ntohs(udp->len) + more);
	changed += 2 * udp->len;
	if (o->replies) {
		changed += (__u16)~udp->dest;
		udp->dest = bpf_htons(port);
		changed += udp->dest;
	} else {
		changed += (__u16)~udp->source;
		udp->source = bpf_htons(port);
		changed += udp->source;
	}
	/* RFC 768: zero says that there is none. */
	udp->check = csum_fold((__u16)~udp->check + changed) ?: 0xffff;
}

/* Of the frames of a mix all have the length of the large one. */
static __always_inline __u32 frame_bytes(const struct order *o)
{
	return o->large && o->left % LARGE_ONES == 0 ? o->large : FLOOD_BYTES;
}

SEC("xdp")
int flood(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct order *o = &current_order;
	__u32 flow, bytes;

	if (data + FLOOD_BYTES > end)
		return XDP_ABORTED;
	if (!o->left || ctx->ingress_ifindex == o->device)
		return XDP_DROP; /* all are sent, or it came in by the device */
	o->left--;
	flow = o->next;
	o->next = flow + 1 < o->flows ? flow + 1 : 0;
	bytes = frame_bytes(o);
	if (o->large) {
		if (bytes < o->large && bpf_xdp_adjust_tail(ctx, FLOOD_BYTES - (int)o->large))
			return XDP_ABORTED;
		data = (void *)(long)ctx->data;
		end = (void *)(long)ctx->data_end;
		if (data + FLOOD_BYTES > end)
			return XDP_ABORTED;
	}
	write_frame(data, o, flow, bytes);
	return bpf_redirect(o->device, 0);
}

char _license[] SEC("license") = "GPL";
