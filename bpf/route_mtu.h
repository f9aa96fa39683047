/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The MTU that a route itself has (ip-route(8), mtu). Linux obeys it when it
 * forwards (ip_forward, ip6_forward), but bpf_fib_lookup says it only where it
 * is locked. So the route is looked for in the kernel's main table, read in
 * place: a trie of prefixes for each family. Where programs cannot read the
 * kernel's structures (before Linux 6.2), only locked MTUs count.
 *
 * With routing rules another table may have the route: an MTU of the main
 * table's then counts if that route leads to the same device.
 */
#ifndef IMBANG_ROUTE_MTU_H
#define IMBANG_ROUTE_MTU_H

#include "address.h"
#include "maps.h"
#include "sources.h"

#define METRIC_MTU 1 /* RTAX_MTU - 1 */
#define LEGACY_TOS 0x1c
#define FIB6_HAS_ROUTES 4 /* RTN_RTINFO */
#define IPV6_LEAST_MTU 1280

/* Steps of a search: levels on the way down and up, and routes of a prefix. */
#define MTU_STEPS 128

struct hlist_node {
	struct hlist_node *next;
} KERNEL;

struct hlist_head {
	struct hlist_node *first;
} KERNEL;

struct dst_metrics {
	__u32 metrics[17];
} KERNEL;

struct fib_nh_common {
	struct net_device *nhc_dev;
} KERNEL;

struct fib_nh {
	struct fib_nh_common nh_common;
} KERNEL;

struct nexthop;

struct fib_info {
	struct dst_metrics *fib_metrics;
	int fib_nhs;
	struct nexthop *nh;
	struct fib_nh fib_nh[0];
} KERNEL;

struct fib_alias {
	struct hlist_node fa_list;
	struct fib_info *fa_info;
	__u8 fa_dscp;
	__u8 fa_slen;
} KERNEL;

struct key_vector {
	__u32 key;
	unsigned char pos;
	unsigned char bits;
	unsigned char slen;
	struct hlist_head leaf; /* or the children's pointers */
} KERNEL;

struct tnode {
	struct key_vector *parent;
	struct key_vector kv[1];
} KERNEL;

struct in6_addr___kernel {
	union {
		__u32 u6_addr32[4];
	} in6_u;
} KERNEL;

struct rt6key {
	struct in6_addr___kernel addr;
	int plen;
} KERNEL;

struct fib6_nh {
	struct fib_nh_common nh_common;
} KERNEL;

struct fib6_info {
	struct fib6_info *fib6_next;
	struct dst_metrics *fib6_metrics;
	struct rt6key fib6_dst;
	struct nexthop *nh;
	struct fib6_nh fib6_nh[0];
} KERNEL;

struct fib6_node {
	struct fib6_node *left;
	struct fib6_node *right;
	struct fib6_info *leaf;
	__u16 fn_bit;
	__u16 fn_flags;
} KERNEL;

struct fib6_table {
	struct fib6_node tb6_root;
} KERNEL;

extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym __weak;

/* What is at an address in the kernel's memory: reading there cannot fault. */
#define AT(type, address) \
	((struct type *)bpf_rdonly_cast((void *)(address), bpf_core_type_id_kernel(struct type)))

/* The device of a route's first next hop, from which it is `offset` bytes away. */
static __always_inline int leads_to(__u64 hop, __u32 ifindex)
{
	return AT(fib_nh_common, hop)->nhc_dev->ifindex == ifindex;
}

static __always_inline __u64 child(__u64 node, __u32 index)
{
	__u64 at = node + bpf_core_field_offset(struct key_vector, leaf) +
		   (index & 0xffffff) * sizeof(void *);

	return (__u64)AT(hlist_head, at)->first;
}

/* A route of a leaf: 1 if it is the one. Its prefix has all but fa_slen bits. */
static __always_inline int mtu_alias(struct mtu_search *s)
{
	struct fib_alias *alias = AT(fib_alias, s->route);
	struct fib_info *info = alias->fa_info;

	s->route = (__u64)alias->fa_list.next;
	if ((__u64)s->differ >> (alias->fa_slen & 63) ||
	    (alias->fa_dscp && alias->fa_dscp != (s->tos & LEGACY_TOS)))
		return 0;
	if (s->ifindex &&
	    (info->nh || info->fib_nhs != 1 ||
	     !leads_to((__u64)info + bpf_core_field_offset(struct fib_info, fib_nh), s->ifindex)))
		return 1;
	s->mtu = info->fib_metrics->metrics[METRIC_MTU];
	return 1;
}

/* Shorter prefixes end in zeros: they are where a bit of the index is 0 that was 1, here
 * or above. 1 if there are none left. */
static __always_inline int mtu_back(struct mtu_search *s)
{
	struct key_vector *up = AT(key_vector, s->up), *above;
	__u32 key = up->key;

	if (s->index) {
		s->index &= s->index - 1;
		s->node = child(s->up, s->index);
		return 0;
	}
	if (up->pos >= 32)
		return 1;
	s->up = (__u64)AT(tnode, s->up - bpf_core_field_offset(struct tnode, kv))->parent;
	above = AT(key_vector, s->up);
	s->index = above->pos < 32 ? (key ^ above->key) >> (above->pos & 31) : 0;
	return 0;
}

static long mtu_step4(__u32 i, struct mtu_search **search)
{
	struct mtu_search *s = *search;
	struct key_vector *node;
	__u32 differ, index;
	__u64 at = s->node;

	if (s->route)
		return mtu_alias(s);
	if (!at)
		return mtu_back(s);
	node = AT(key_vector, at);
	differ = s->key ^ node->key;
	index = differ >> (node->pos & 31);
	s->node = 0;
	/* Where the address leaves the node's prefix, only zeros may follow in that. */
	if (index >> (node->bits & 31)) {
		if (differ & (node->key | -node->key) || node->slen == node->pos)
			return 0;
		index = 0;
	} else if (node->bits && node->slen > node->pos) {
		s->up = at;
		s->index = index;
	}
	if (node->bits) {
		s->node = child(at, index);
	} else {
		s->differ = differ;
		s->route = child(at, 0);
	}
	return 0;
}

static __always_inline void mtu_of4(struct mtu_search *s, struct net *net,
				    const struct route_key *j)
{
	if (!bpf_core_type_exists(struct key_vector) ||
	    !bpf_core_field_exists(net->ipv4.fib_main) ||
	    !bpf_core_field_exists(struct fib_alias, fa_dscp))
		return;
	if (!net->ipv4.fib_has_custom_rules)
		s->ifindex = 0;
	s->key = bpf_ntohl(address_to4(&j->dst));
	s->tos = j->tos;
	s->index = 0;
	s->route = 0;
	s->up = (__u64)net->ipv4.fib_main->tb_data;
	if (!s->up)
		return;
	s->node = child(s->up, 0);
	bpf_loop(MTU_STEPS, mtu_step4, &s, 0);
}

/* Likewise in IPv6's tree. */

static __always_inline __u64 half(const __u32 *word)
{
	return (__u64)bpf_ntohl(word[0]) << 32 | bpf_ntohl(word[1]);
}

/* Whether the address is in a route's prefix. */
static __always_inline int mtu_in(const struct mtu_search *s, const struct fib6_info *route)
{
	const struct rt6key *of = &route->fib6_dst;
	__u64 upper = (__u64)bpf_ntohl(of->addr.in6_u.u6_addr32[0]) << 32 |
		      bpf_ntohl(of->addr.in6_u.u6_addr32[1]);
	__u64 lower = (__u64)bpf_ntohl(of->addr.in6_u.u6_addr32[2]) << 32 |
		      bpf_ntohl(of->addr.in6_u.u6_addr32[3]);
	__u32 length = of->plen;

	upper ^= s->upper;
	lower ^= s->lower;
	if (!length)
		return 1;
	if (length <= 64)
		return !(upper >> ((64 - length) & 63));
	return !upper && !(lower >> ((128 - length) & 63));
}

/* A longer prefix is deeper: the last one found counts. */
static __always_inline void mtu_route(struct mtu_search *s)
{
	struct fib6_info *route = AT(fib6_info, s->route);
	__u64 hop = s->route + bpf_core_field_offset(struct fib6_info, fib6_nh);

	s->route = (__u64)route->fib6_next;
	if (!mtu_in(s, route)) {
		s->route = 0;
		return;
	}
	if (!route->nh && !leads_to(hop, s->ifindex))
		return;
	s->mtu = route->fib6_metrics->metrics[METRIC_MTU];
	s->route = 0;
}

static long mtu_step6(__u32 i, struct mtu_search **search)
{
	struct mtu_search *s = *search;
	struct fib6_node *node;
	__u32 bit;

	if (s->route) {
		mtu_route(s);
		return 0;
	}
	if (!s->node)
		return 1;
	node = AT(fib6_node, s->node);
	if (node->fn_flags & FIB6_HAS_ROUTES)
		s->route = (__u64)node->leaf;
	bit = node->fn_bit;
	if (bit >= 128)
		s->node = 0;
	else if ((bit < 64 ? s->upper >> (63 - bit) : s->lower >> ((127 - bit) & 63)) & 1)
		s->node = (__u64)node->right;
	else
		s->node = (__u64)node->left;
	return 0;
}

static __always_inline void mtu_of6(struct mtu_search *s, struct net *net,
				    const struct route_key *j)
{
	if (!bpf_core_type_exists(struct fib6_node) ||
	    !bpf_core_field_exists(net->ipv6.fib6_main_tbl))
		return;
	s->upper = half(&j->dst.word[0]);
	s->lower = half(&j->dst.word[2]);
	s->route = 0;
	s->node = (__u64)net->ipv6.fib6_main_tbl;
	if (!s->node)
		return;
	s->node += bpf_core_field_offset(struct fib6_table, tb6_root);
	bpf_loop(MTU_STEPS, mtu_step6, &s, 0);
	if (s->mtu && s->mtu < IPV6_LEAST_MTU)
		s->mtu = IPV6_LEAST_MTU;
}

/* The MTU that the route to an address by a device has of its own; 0: none. Global, so
 * that the verifier walks it once. */
__noinline int route_mtu(const struct route_key *j, __u32 ifindex)
{
	__u32 which, slot = SCRATCH_PACKET;
	struct mtu_search *search;
	struct routing *routing;
	union scratch *room;
	struct net *net;

	if (!j || !bpf_rdonly_cast)
		return 0;
	which = j->family == AF_INET6;
	routing = bpf_map_lookup_elem(&sources, &which);
	room = bpf_map_lookup_elem(&scratch, &slot);
	if (!routing || !routing->net || !room)
		return 0;
	net = AT(net, routing->net);
	search = &room->mtu;
	search->ifindex = ifindex;
	search->mtu = 0;
	if (which)
		mtu_of6(search, net, j);
	else
		mtu_of4(search, net, j);
	return search->mtu;
}

#endif
