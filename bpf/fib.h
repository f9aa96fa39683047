/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the kernel's routing tables say beyond bpf_fib_lookup, read in place: a trie of
 * prefixes for each family.
 *
 * 1. The MTU that a route itself has (ip-route(8), mtu). Linux obeys it when it
 *    forwards (ip_forward, ip6_finish_output), but bpf_fib_lookup returns it only where it
 *    is locked.
 * 2. The block of the destination: the largest prefix around it that contains no more
 *    specific one. All its addresses have the same covering prefixes, so the kernel's
 *    search visits the same routes for each and returns the same one. That holds for
 *    routes of any kind and with any metric or type of service.
 * 3. Whether the route has several next hops, of which the kernel chooses by
 *    addresses, and whether addresses behind it may have a path MTU of their own.
 *
 * bpf_fib_lookup does not say which route it found, only the next hop. A route
 * counts if that is one of its next hops: others are in other tables (routing
 * rules), or were passed over (no carrier).
 *
 * The programs run under RCU's read lock, as the kernel's own searches do, which
 * resize and replace nodes by copies. A read of memory that is freed in spite of that
 * returns 0 or another value, and cannot fault; the number of steps is bounded.
 *
 * Where programs cannot read the kernel's structures (before Linux 6.2, or if
 * a member has another name), only locked MTUs count, and each address is a block.
 */
#ifndef IMBANG_FIB_H
#define IMBANG_FIB_H

#include "address.h"
#include "maps.h"
#include "sources.h"

#define METRIC_MTU 1 /* RTAX_MTU - 1 */
#define LEGACY_TOS 0x1c
#define FIB6_HAS_ROUTES 4 /* RTN_RTINFO */
#define IPV4_LEAST_MTU 68

/* An IPv6 link takes packets of so many bytes (RFC 8200, 5). */
#define IPV6_LEAST_MTU 1280

/* Steps of a search: levels on the way down and up, routes of a prefix, and their next hops. */
#define FIB_STEPS 1024

struct hlist_node {
	struct hlist_node *next;
} KERNEL;

struct hlist_head {
	struct hlist_node *first;
} KERNEL;

struct dst_metrics {
	__u32 metrics[17];
} KERNEL;

struct in6_addr___kernel {
	union {
		__u32 u6_addr32[4];
	} in6_u;
} KERNEL;

struct fib_nh_common {
	struct net_device *nhc_dev;
	__u8 nhc_gw_family;
	union {
		__be32 ipv4;
		struct in6_addr___kernel ipv6;
	} nhc_gw;
	void *nhc_exceptions; /* path MTUs */
} KERNEL;

struct fib_nh {
	struct fib_nh_common nh_common;
} KERNEL;

struct nexthop;

struct nh_info {
	union {
		struct fib_nh_common fib_nhc;
	};
} KERNEL;

struct nh_grp_entry {
	struct nexthop *nh;
} KERNEL;

struct nh_group {
	__u16 num_nh;
	struct nh_grp_entry nh_entries[0];
} KERNEL;

struct nexthop {
	_Bool is_group;
	union {
		struct nh_info *nh_info;
		struct nh_group *nh_grp;
	};
} KERNEL;

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

struct rt6key {
	struct in6_addr___kernel addr;
	int plen;
} KERNEL;

struct fib6_nh {
	struct fib_nh_common nh_common;
	void *rt6i_exception_bucket;
} KERNEL;

struct fib6_info {
	struct fib6_info *fib6_next;
	unsigned int fib6_nsiblings;
	struct dst_metrics *fib6_metrics;
	struct rt6key fib6_dst;
	struct nexthop *nh;
	struct fib6_nh fib6_nh[0];
} KERNEL;

struct fib6_node {
	struct fib6_node *left;
	struct fib6_node *right;
	struct fib6_node *subtree; /* of sources */
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

#define HAS(type, member) bpf_core_field_exists(struct type, member)

/* Whether both families' members are where this file looks for them. */
static __always_inline int fib_readable(void)
{
	return bpf_rdonly_cast && HAS(net_device, ifindex) && HAS(fib_nh_common, nhc_dev) &&
	       HAS(fib_nh_common, nhc_gw_family) && HAS(fib_nh_common, nhc_exceptions) &&
	       HAS(fib_nh_common, nhc_gw.ipv4) && HAS(fib_nh_common, nhc_gw.ipv6.in6_u.u6_addr32) &&
	       HAS(nexthop, is_group) && HAS(nexthop, nh_info) && HAS(nexthop, nh_grp) &&
	       HAS(nh_info, fib_nhc) && HAS(nh_group, num_nh) && HAS(nh_group, nh_entries) &&
	       HAS(nh_grp_entry, nh) && HAS(dst_metrics, metrics);
}

/* Takes the next one of a route's next hops: of an object's (ip-nexthop(8)), or of the
 * route's own, which are at `own`. Returns its address; 0: there are no more. */
static __always_inline __u64 take_hop_of(struct fib_search *s, struct nexthop *object, __u64 own,
					 __u32 count)
{
	__u32 i = s->hop++;
	struct nh_group *group;

	if (!object)
		return i < count ? own + i * bpf_core_type_size(struct fib_nh) : 0;
	if (object->is_group) {
		/* For the verifier, a union's pointer has the type of its first member. */
		group = AT(nh_group, object->nh_grp);
		if (i >= group->num_nh)
			return 0;
		object = AT(nh_grp_entry,
			    (__u64)group + bpf_core_field_offset(struct nh_group, nh_entries) +
				    i * bpf_core_type_size(struct nh_grp_entry))
				 ->nh;
	} else if (i) {
		return 0;
	}
	return (__u64)object->nh_info + bpf_core_field_offset(struct nh_info, fib_nhc);
}

/* Whether the kernel chooses one of a route's next hops by addresses. */
static __always_inline int chooses(struct nexthop *object, __u32 count)
{
	return object ? object->is_group : count > 1;
}

static __always_inline __u64 low_bits(__u32 count)
{
	return (1ULL << (count & 63)) - 1;
}

/* The bits below the highest one that is set. */
static __always_inline __u64 below(__u64 differ)
{
	differ |= differ >> 1;
	differ |= differ >> 2;
	differ |= differ >> 4;
	differ |= differ >> 8;
	differ |= differ >> 16;
	differ |= differ >> 32;
	return differ >> 1;
}

/* Whether a next hop is the one that the packet takes. */
static __always_inline int leads_to(const struct fib_search *s, __u64 at)
{
	struct fib_nh_common *hop = AT(fib_nh_common, at);
	union address gateway;

	if (hop->nhc_dev->ifindex != s->ifindex)
		return 0;
	switch (hop->nhc_gw_family) {
	case AF_INET:
		address_from4(&gateway, hop->nhc_gw.ipv4);
		break;
	case AF_INET6:
		gateway.word[0] = hop->nhc_gw.ipv6.in6_u.u6_addr32[0];
		gateway.word[1] = hop->nhc_gw.ipv6.in6_u.u6_addr32[1];
		gateway.word[2] = hop->nhc_gw.ipv6.in6_u.u6_addr32[2];
		gateway.word[3] = hop->nhc_gw.ipv6.in6_u.u6_addr32[3];
		break;
	default:
		return s->direct;
	}
	return address_equal(&gateway, &s->next);
}

static __always_inline __u64 child(__u64 node, __u32 index)
{
	__u64 at = node + bpf_core_field_offset(struct key_vector, leaf) +
		   (index & 0xffffff) * sizeof(void *);

	return (__u64)AT(hlist_head, at)->first;
}

/* A next hop of a leaf's route: 1 if it is the one. The prefix has all but fa_slen bits. */
static __always_inline int fib_prefix(struct fib_search *s)
{
	struct fib_alias *alias = AT(fib_alias, s->route);
	struct fib_info *info = alias->fa_info;
	int covers = !((__u64)s->differ >> (alias->fa_slen & 63));
	__u64 hop = 0;

	/* Of any type of service: kernels differ in which bits of it they compare. */
	if (covers && chooses(info->nh, info->fib_nhs))
		s->several = 1;
	if (covers && (!alias->fa_dscp || alias->fa_dscp == (s->tos & LEGACY_TOS)))
		hop = take_hop_of(s, info->nh,
				  (__u64)info + bpf_core_field_offset(struct fib_info, fib_nh),
				  info->fib_nhs);
	if (!hop) {
		s->hop = 0;
		s->route = (__u64)alias->fa_list.next;
		return 0;
	}
	if (!leads_to(s, hop))
		return 0;
	s->mtu = info->fib_metrics->metrics[METRIC_MTU];
	s->excepted = !!AT(fib_nh_common, hop)->nhc_exceptions;
	s->found = 1;
	return 1;
}

/* Shorter prefixes end in zeros: they are where a bit of the index is 0 that was 1, here
 * or above. 1 if there are none left. */
static __always_inline int fib_back(struct fib_search *s)
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

/*
 * The low bits of the address that every node visited so far leaves to the block. A
 * leaf's first prefix is its longest. All prefixes below a node that does not
 * contain the address differ from it in the same bit. Of a node that contains it, the
 * other children are assumed to exist, so that the block may be smaller than it could be.
 */
static __always_inline void fib_narrow4(struct fib_search *s, __u64 at, __u32 differ)
{
	struct key_vector *node = AT(key_vector, at);

	if (!node->bits)
		s->free &= below(differ) | low_bits(AT(fib_alias, child(at, 0))->fa_slen);
	else if ((__u64)differ >> ((node->pos + node->bits) & 63))
		s->free &= below(differ);
	else
		s->free &= low_bits(node->pos);
}

static long fib_step4(__u32 i, struct fib_search **search)
{
	struct fib_search *s = *search;
	struct key_vector *node;
	__u32 differ, index;
	__u64 at = s->node;

	if (s->route)
		return fib_prefix(s);
	if (!at)
		return fib_back(s);
	node = AT(key_vector, at);
	differ = s->key ^ node->key;
	index = differ >> (node->pos & 31);
	s->node = 0;
	fib_narrow4(s, at, differ);
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

static __always_inline int fib_readable4(void)
{
	return HAS(net, ipv4.fib_main) && HAS(fib_table, tb_data) && HAS(key_vector, key) &&
	       HAS(key_vector, pos) && HAS(key_vector, bits) && HAS(key_vector, slen) &&
	       HAS(key_vector, leaf) && HAS(tnode, parent) && HAS(tnode, kv) &&
	       HAS(hlist_head, first) && HAS(hlist_node, next) && HAS(fib_alias, fa_list) &&
	       HAS(fib_alias, fa_info) && HAS(fib_alias, fa_dscp) && HAS(fib_alias, fa_slen) &&
	       HAS(fib_info, fib_metrics) && HAS(fib_info, fib_nhs) && HAS(fib_info, nh) &&
	       HAS(fib_info, fib_nh);
}

static __always_inline void fib_of4(struct fib_search *s, struct net *net, const struct route *w)
{
	if (!fib_readable4())
		return;
	s->key = bpf_ntohl(address_to4(&w->of.dst));
	s->tos = w->of.tos;
	s->index = 0;
	s->up = (__u64)net->ipv4.fib_main->tb_data;
	if (!s->up)
		return;
	s->node = child(s->up, 0);
	if (bpf_loop(FIB_STEPS, fib_step4, &s, 0) == FIB_STEPS)
		s->found = 0;
}

/* Likewise in IPv6's tree. */

/* Half of an address, in host order. */
static __always_inline __u64 half(const __u32 *word)
{
	return (__u64)bpf_ntohl(word[0]) << 32 | bpf_ntohl(word[1]);
}

/* Whether the address is in a route's prefix. */
static __always_inline int fib_in(const struct fib_search *s, const struct fib6_info *route)
{
	const struct rt6key *of = &route->fib6_dst;
	__u64 upper = half(&of->addr.in6_u.u6_addr32[0]);
	__u64 lower = half(&of->addr.in6_u.u6_addr32[2]);
	__u32 length = of->plen;

	upper ^= s->upper;
	lower ^= s->lower;
	if (!length)
		return 1;
	if (length <= 64)
		return !(upper >> ((64 - length) & 63));
	return !upper && !(lower >> ((128 - length) & 63));
}

/* A next hop of a node's route. A longer prefix is deeper: the last one found counts. */
static __always_inline void fib_route(struct fib_search *s)
{
	struct fib6_info *route = AT(fib6_info, s->route);
	__u64 hop;

	if (!fib_in(s, route)) {
		s->route = 0;
		return;
	}
	hop = take_hop_of(s, route->nh, s->route + bpf_core_field_offset(struct fib6_info, fib6_nh),
			  1);
	if (!hop) {
		s->hop = 0;
		s->route = (__u64)route->fib6_next;
	} else if (leads_to(s, hop)) {
		s->mtu = route->fib6_metrics->metrics[METRIC_MTU];
		s->several = chooses(route->nh, 1) || route->fib6_nsiblings;
		s->excepted = !!AT(fib6_nh, hop)->rt6i_exception_bucket;
		s->found = 1;
		s->hop = 0;
		s->route = 0;
	}
}

/*
 * Likewise, of the upper half of an address: longer prefixes leave none of the lower
 * one. The prefix of a node is that of its first route, or if it has no routes, of one below it.
 * (If that is missing for a moment, the node is taken to contain the address: the
 * block is smaller at most.) `other` is the child that the address is not in.
 */
static __always_inline void fib_narrow6(struct fib_search *s, const struct fib6_node *node,
					const struct fib6_node *other)
{
	__u32 length = node->fn_bit;
	struct fib6_info *route = node->leaf;
	__u64 differ = 0;

	if (route && route->fib6_dst.plen >= length)
		differ = s->upper ^ half(&route->fib6_dst.addr.in6_u.u6_addr32[0]);
	if (length < 64 && !(differ & ~(~0ULL >> length))) {
		if (other)
			s->free &= ~0ULL >> length >> 1;
		else if (node->fn_flags & FIB6_HAS_ROUTES)
			s->free &= ~0ULL >> length;
	} else if (differ) {
		s->free &= below(differ);
	} else {
		s->free = 0;
		if (length > 64 || other)
			s->exact = 1;
	}
}

/* The local table comes first, and only its prefixes matter: of an address that it
 * has routes for the look-up returned none. */
static long fib_step6(__u32 i, struct fib_search **search)
{
	struct fib_search *s = *search;
	struct fib6_node *node, *next = 0, *other = 0;
	__u32 bit;

	if (s->route) {
		fib_route(s);
		return 0;
	}
	if (!s->node) {
		s->node = s->main;
		s->main = 0;
		return !s->node;
	}
	node = AT(fib6_node, s->node);
	/* With routes of sources (ip-route(8), from), Linux leaves the others out. */
	if (!s->main && node->fn_flags & FIB6_HAS_ROUTES &&
	    !(HAS(fib6_node, subtree) && node->subtree))
		s->route = (__u64)node->leaf;
	bit = node->fn_bit;
	if (bit < 128) {
		if ((bit < 64 ? s->upper >> (63 - bit) : s->lower >> ((127 - bit) & 63)) & 1) {
			next = node->right;
			other = node->left;
		} else {
			next = node->left;
			other = node->right;
		}
	}
	s->node = (__u64)next;
	fib_narrow6(s, node, other);
	return 0;
}

static __always_inline int fib_readable6(void)
{
	return HAS(net, ipv6.fib6_main_tbl) && HAS(fib6_info, fib6_nsiblings) &&
	       HAS(fib6_nh, rt6i_exception_bucket) && HAS(fib6_table, tb6_root) &&
	       HAS(fib6_node, left) && HAS(fib6_node, right) && HAS(fib6_node, leaf) &&
	       HAS(fib6_node, fn_bit) && HAS(fib6_node, fn_flags) && HAS(fib6_info, fib6_next) &&
	       HAS(fib6_info, fib6_metrics) && HAS(fib6_info, fib6_dst) && HAS(fib6_info, nh) &&
	       HAS(fib6_info, fib6_nh) && HAS(rt6key, addr.in6_u.u6_addr32) && HAS(rt6key, plen);
}

static __always_inline void fib_of6(struct fib_search *s, struct net *net, const struct route *w)
{
	if (!fib_readable6())
		return;
	s->upper = half(&w->of.dst.word[0]);
	s->lower = half(&w->of.dst.word[2]);
	s->main = (__u64)net->ipv6.fib6_main_tbl;
	if (!s->main)
		return;
	s->main += bpf_core_field_offset(struct fib6_table, tb6_root);
	s->node = 0;
	if (!w->source && HAS(net, ipv6.fib6_local_tbl) && net->ipv6.fib6_local_tbl)
		s->node = (__u64)net->ipv6.fib6_local_tbl +
			  bpf_core_field_offset(struct fib6_table, tb6_root);
	if (bpf_loop(FIB_STEPS, fib_step6, &s, 0) == FIB_STEPS)
		s->found = 0;
}

/* The least path MTU that the kernel may have of an address. */
static __always_inline __u16 path_mtu_least(struct net *net, __u8 family)
{
	if (family == AF_INET6)
		return IPV6_LEAST_MTU;
	return HAS(net, ipv4.ip_rt_min_pmtu) ? net->ipv4.ip_rt_min_pmtu : IPV4_LEAST_MTU;
}

/* Searches the route by which the kernel sends packets as a cached one does. Returns 0 if
 * there is none. */
static __always_inline int fib_find(struct fib_search *search, const struct routing *routing,
				    const struct route *w)
{
	struct net *net;

	if (!routing->net || !fib_readable())
		return 0;
	net = AT(net, routing->net);
	search->found = 0;
	search->route = 0;
	search->next = w->next;
	search->direct = address_equal(&w->next, &w->of.dst);
	search->ifindex = w->ifindex;
	search->hop = 0;
	search->mtu = 0;
	search->free = ~0ULL;
	search->exact = 0;
	search->several = 0;
	search->excepted = 0;
	search->fits = 0xffff;
	if (w->of.family == AF_INET6)
		fib_of6(search, net, w);
	else
		fib_of4(search, net, w);
	if (search->excepted)
		search->fits = path_mtu_least(net, w->of.family);
	if (search->several)
		search->fits = 0;
	return search->found;
}

#endif
