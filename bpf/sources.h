/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whether a packet's route may depend on more than its destination. It does where there
 * are routing rules (policy routing, VRF), or routes of one source's own (IPv6);
 * then each pair of addresses has a cached route of its own. Elsewhere one route is shared
 * by all sources and a block of destinations (route.h). The kernel says which, in the
 * network namespace; where it cannot be asked (before Linux 6.2), it matters.
 */
#ifndef IMBANG_SOURCES_H
#define IMBANG_SOURCES_H

#include <bpf/bpf_core_read.h>

#include "maps.h"

/* Which kind of program asks: their contexts lead to the device in two ways. */
enum hook { HOOK_TC, HOOK_XDP };

#define KERNEL __attribute__((preserve_access_index))

struct fib_rules_ops;
struct fib6_table;

struct fib_table {
	unsigned long *tb_data;
} KERNEL;

struct netns_ipv4 {
	struct fib_rules_ops *rules_ops;
	_Bool fib_has_custom_rules;
	struct fib_table *fib_main;
	__u32 ip_rt_min_pmtu;
} KERNEL;

struct netns_ipv6 {
	struct fib_rules_ops *fib6_rules_ops;
	_Bool fib6_has_custom_rules;
	unsigned int fib6_routes_require_src;
	struct fib6_table *fib6_main_tbl;
	struct fib6_table *fib6_local_tbl;
} KERNEL;

struct net {
	struct netns_ipv4 ipv4;
	struct netns_ipv6 ipv6;
} KERNEL;

typedef struct {
	struct net *net;
} KERNEL possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
} KERNEL;

struct sk_buff {
	struct net_device *dev;
} KERNEL;

struct xdp_rxq_info {
	struct net_device *dev;
} KERNEL;

struct xdp_buff {
	struct xdp_rxq_info *rxq;
} KERNEL;

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym __weak;

/* Whether all sources are alike in a network namespace. A kernel without policy
 * routing has no such fields; one that has other fields cannot be asked. */
static __always_inline int alike_in(struct net *net, __u8 family)
{
	if (family == AF_INET)
		return bpf_core_field_exists(net->ipv4.fib_has_custom_rules)
			       ? !net->ipv4.fib_has_custom_rules
			       : !bpf_core_field_exists(net->ipv4.rules_ops);
	if (bpf_core_field_exists(net->ipv6.fib6_routes_require_src) &&
	    net->ipv6.fib6_routes_require_src)
		return 0;
	return bpf_core_field_exists(net->ipv6.fib6_has_custom_rules)
		       ? !net->ipv6.fib6_has_custom_rules
		       : !bpf_core_field_exists(net->ipv6.fib6_rules_ops);
}

static __always_inline struct routing *routing_of(__u8 family)
{
	return &cache.routing[family == AF_INET6];
}

/* Asks the kernel, and remembers it for all CPUs. */
static __always_inline void sources_ask(void *ctx, enum hook hook, __u8 family)
{
	struct routing *known = routing_of(family);
	struct net_device *dev;
	struct net *net;
	__u32 alike;

	if (!bpf_cast_to_kern_ctx)
		return;
	if (hook == HOOK_XDP)
		dev = ((struct xdp_buff *)bpf_cast_to_kern_ctx(ctx))->rxq->dev;
	else
		dev = ((struct sk_buff *)bpf_cast_to_kern_ctx(ctx))->dev;
	net = dev->nd_net.net;
	alike = alike_in(net, family);
	if (known->alike != alike)
		known->alike = alike;
	if (known->net != (__u64)net)
		known->net = (__u64)net;
}

#endif
