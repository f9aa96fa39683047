// SPDX-License-Identifier: GPL-2.0-only
/*
 * The director's packet path: parse, find, pick, forward, count. See
 * ARCHITECTURE.md, "the life of a packet".
 */
#include "kernel.h"
#include "adopt.h"
#include "backup.h"
#include "expiry.h"
#include "explain.h"
#include "fast.h"
#include "local.h"
#include "maps.h"
#include "orphans.h"
#include "ramp.h"
#include "rates.h"
#include "repair.h"
#include "sched.h"
#include "sweep.h"
#include "table/trim.h"
#include "types.h"
#include "upgrade.h"
#include "whole.h"
#include "xdp.h"

/* Every packet that the fast path leaves. */
SEC("tc")
int lb_whole(struct __sk_buff *skb)
{
	return handle(skb);
}

/* user: programs that go on with a packet, by enum entry: the next build's, and this one's. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, ENTRIES + 1);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} stages SEC(".maps") = {
	.values = { [ENTRY_MORE] = (void *)&lb_whole },
};

static __always_inline int enter(struct __sk_buff *skb, int expect_replies)
{
	int verdict = fast(skb, expect_replies);

	if (verdict != UNDECIDED && verdict != UNKNOWN)
		return verdict;
	skb->cb[0] = expect_replies | (verdict == UNKNOWN ? NOTHING_FOUND : 0);
	bpf_tail_call(skb, &stages, ENTRY_MORE);
	return VERDICT_PASS; /* the director is being taken down */
}

/* Both programs do the same; they differ in which half they look for first. */

SEC("tc")
int lb_client(struct __sk_buff *skb)
{
	STAGE_BEGIN();
	HAND_OVER(skb, &stages, ENTRY_CLIENT);
	return enter(skb, 0);
}

SEC("tc")
int lb_server(struct __sk_buff *skb)
{
	STAGE_BEGIN();
	HAND_OVER(skb, &stages, ENTRY_SERVER);
	return enter(skb, 1);
}

/* In front of them, in the modes of XDP. */

/* Plain packets that the fast path leaves. */
SEC("xdp")
int lb_xdp_more(struct xdp_md *ctx)
{
	struct packet p = { .server = NO_SERVER };

	return xdp_more(ctx, &p);
}

/* user: as stages. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, ENTRIES + 1);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} xdp_stages SEC(".maps") = {
	.values = { [ENTRY_MORE] = (void *)&lb_xdp_more },
};

static __always_inline int xdp_enter(struct xdp_md *ctx, int expect_replies)
{
	int action = xdp_fast(ctx, expect_replies);

	if (action != UNDECIDED)
		return action;
	bpf_tail_call(ctx, &xdp_stages, ENTRY_MORE);
	return XDP_PASS;
}

SEC("xdp")
int lb_xdp_client(struct xdp_md *ctx)
{
	STAGE_BEGIN();
	HAND_OVER(ctx, &xdp_stages, ENTRY_CLIENT);
	return xdp_enter(ctx, 0);
}

SEC("xdp")
int lb_xdp_server(struct xdp_md *ctx)
{
	STAGE_BEGIN();
	HAND_OVER(ctx, &xdp_stages, ENTRY_SERVER);
	return xdp_enter(ctx, 1);
}

/* On the way out of the same devices. */
SEC("tc")
int lb_local(struct __sk_buff *skb)
{
	/* It came in somewhere: a packet forwarded. */
	if (skb->ingress_ifindex)
		return VERDICT_PASS;
	HAND_OVER(skb, &stages, ENTRY_LOCAL);
	return handle_local(skb);
}

/* Run by `imbang why`, on a description of a packet. */
SEC("tc")
int explain(struct __sk_buff *skb)
{
	return explain_packet(skb);
}

/* Run once when the tables are made; again if there was no memory for it. Not
 * of type syscall: such a program may sleep, and older kernels then keep it
 * from tables whose values hold a lock. */
SEC("tc")
int start_clocks(struct __sk_buff *skb)
{
	int rc = table_begin();

	rc = rc ? rc : table_start();

	rc = rc ? rc : rate_start();
	return rc ? rc : sweep_start();
}

/* Run by an upgrade, on what is in `conn_records`; a classifier as start_clocks is. The first
 * run is before packets are this build's, so that they find buckets. */
SEC("tc")
int adopt_conns(struct __sk_buff *skb)
{
	int rc = table_begin();

	if (rc)
		return rc;
	bpf_loop(CONN_RECORDS, adopt_one, 0, 0);
	return 0;
}

/* Run by commands that enter connections, on what is in `conn_records`; a classifier as
 * start_clocks is. */
SEC("tc")
int import_conns(struct __sk_buff *skb)
{
	bpf_loop(CONN_RECORDS, record_enter, 0, 0);
	return 0;
}

/* Run by commands that take servers away; a classifier as start_clocks is. */
SEC("tc")
int end_orphans(struct __sk_buff *skb)
{
	orphans_end();
	return 0;
}

/* Run by `imbang audit --repair`; a classifier as start_clocks is. The frame is a
 * struct repair behind an Ethernet header. */
SEC("tc")
int repair_table(struct __sk_buff *skb)
{
	struct repair r;

	if (bpf_skb_load_bytes(skb, ETH_HEADER, &r, sizeof(r)))
		return REPAIR_FAILED;
	return repair_one(&r);
}

/* Run by the process that adds memory to the connection table, when it has waited for packets under
 * way; a classifier as start_clocks is. How many blocks were given back. */
SEC("tc")
int trim_table(struct __sk_buff *skb)
{
	return trim();
}

/* Run by commands after each edit of the tables; again if it returns an error. */
SEC("syscall")
int table_changed(struct change *change)
{
	struct change c = *change;

	if (c.event == CHANGE_REOPEN)
		server_reopen(c.position);
	else
		scheduler_changed(&c);
	ramps_changed(&c.service);
	return c.error;
}

#ifdef IMBANG_TEST
#include "variant_programs.h"
#endif

char _license[] SEC("license") = "GPL";
