/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The route cache: results of the kernel's routing and neighbour tables.
 *
 * A look-up there costs as much as everything else that a packet of an
 * established connection needs, and packets of one route follow each other
 * closely. So each CPU caches a result for ROUTE_LIFETIME. That is how long a
 * change of routes or neighbours may take to become effective; no notification
 * is needed. All sources share a route where it does not depend on them
 * (sources.h).
 */
#ifndef IMBANG_ROUTE_H
#define IMBANG_ROUTE_H

#include "address.h"
#include "clock.h"
#include "maps.h"
#include "packet.h"
#include "route_mtu.h"
#include "sources.h"

#define ROUTE_LIFETIME (NSEC_PER_SEC / 128)

/* Of the type of service; the rest is congestion notification (RFC 3168). */
#define DSCP 0xfc

/*
 * Writing a neighbour's hardware address into a packet does not make the kernel
 * revalidate it; a packet sent through its neighbour table does when the entry
 * is old. Each slot sends a packet that way when none was for so long. (At
 * intervals, not at random: a simulation must be reproducible on every CPU.)
 */
#define NEIGHBOUR_REFRESH (NSEC_PER_SEC / 4)

/* How long each source has a route of its own once the next hop was a router. */
#define ROUTE_PER_SOURCE NSEC_PER_SEC

static __always_inline void route_key_fill(struct route_key *j, const struct packet *p,
					   const union address *src, const union address *dst)
{
	j->src = *src;
	j->dst = *dst;
	j->ifindex = p->ifindex;
	j->family = address_family(dst);
	j->protocol = p->flow.protocol;
	j->tos = j->family == AF_INET ? p->tos & DSCP : 0;
	j->pad = 0;
}

static __always_inline struct route *route_at(__u32 slot)
{
	return bpf_map_lookup_elem(&routes, &slot);
}

/* The slot of a key: shared by all sources, or the source's own. */
static __always_inline __u32 route_slot(const struct route_key *j, int all)
{
	__u32 mix = all ? 0 : address_fold(&j->src, j->family) * 0x9e3779b1U;

	mix += address_fold(&j->dst, j->family);
	mix += j->ifindex << 24 ^ j->protocol << 16 ^ j->tos << 8;
	return hash_32(mix, ROUTE_CACHE_BITS);
}

static __always_inline int route_matches(const struct route *w, const struct route_key *j, int all)
{
	const __u64 *a = (const void *)&w->of, *b = (const void *)j;

	_Static_assert(sizeof(*j) == 5 * sizeof(*a), "compared word by word");
	return a[2] == b[2] && a[3] == b[3] && a[4] == b[4] && w->all == all &&
	       (all || (a[0] == b[0] && a[1] == b[1]));
}

/* Whether a packet of so many bytes can go as an earlier one did. A length of
 * 0 is not known. */
static __always_inline int route_fits(struct route *w, const struct route_key *j, int all,
				      __u32 longest)
{
	if (!route_matches(w, j, all) || time_coarse() >= w->until || longest - 1 >= w->mtu)
		return 0;
	return 1;
}

/* Whether a route that would be shared was found to depend on the source. */
static __always_inline int route_is_per_source(const struct route *w, const struct route_key *j)
{
	return route_matches(w, j, 1) && time_coarse() < w->per_source;
}

/* Assigns a slot to a key. A function, to limit the caller's stack. */
static __noinline void route_claim(struct route *w, const struct route_key *j, __u32 slot, int all)
{
	if (!route_matches(w, j, all)) {
		w->until = 0;
		barrier();
		w->ask = 0;
		w->per_source = 0;
		w->all = all;
		w->slot = slot;
	}
	w->of = *j;
}

/* An IPv6 link takes packets of so many bytes (RFC 8200, 5). */
#define IPV6_LEAST_MTU 1280

/* route_lookup without the MTU that the route may have of its own. A packet that is too
 * big gets a look-up for a short one too, which says where the route leads. */
static __noinline long route_lookup_fib(void *ctx, struct route *w, const struct route_key *j,
					__u32 longest)
{
	struct bpf_fib_lookup fib = {};
	long rc;
	__u16 mtu;
	__u64 now;

	fib.family = j->family;
	fib.l4_protocol = j->protocol;
	fib.ifindex = j->ifindex;
	fib.tot_len = longest > 0xffff ? 0xffff : longest;
	if (j->family == AF_INET) {
		fib.tos = j->tos;
		fib.ipv4_src = address_to4(&j->src);
		fib.ipv4_dst = address_to4(&j->dst);
	} else {
		__builtin_memcpy(fib.ipv6_src, &j->src, sizeof(j->src));
		__builtin_memcpy(fib.ipv6_dst, &j->dst, sizeof(j->dst));
	}
	rc = bpf_fib_lookup(ctx, &fib, sizeof(fib), 0);
	mtu = fib.mtu_result;
	if (rc == BPF_FIB_LKUP_RET_FRAG_NEEDED) {
		fib.tot_len = 1;
		rc = bpf_fib_lookup(ctx, &fib, sizeof(fib), 0);
	}
	w->known = rc == BPF_FIB_LKUP_RET_SUCCESS;
	w->ifindex = fib.ifindex;
	w->mtu = mtu;
	__builtin_memcpy(w->dmac, fib.dmac, sizeof(w->dmac));
	__builtin_memcpy(w->smac, fib.smac, sizeof(w->smac));
	/* A router may be of the other family (RFC 8950). */
	if (fib.family == AF_INET)
		address_from4(&w->next, fib.ipv4_dst);
	else
		__builtin_memcpy(&w->next, fib.ipv6_dst, sizeof(w->next));
	w->peer = !!bpf_map_lookup_elem(&peers, &fib.ifindex);
	now = now_coarse_ns();
	w->ask |= !w->known || now - w->asked >= NEIGHBOUR_REFRESH;
	if (w->ask)
		w->asked = now;
	w->until = w->known ? now + ROUTE_LIFETIME : 0;
	if (w->all && !address_equal(&w->next, &w->of.dst)) {
		w->until = 0;
		w->per_source = now + ROUTE_PER_SOURCE;
	}
	return rc;
}

/*
 * Looks the route up for a packet of so many bytes (0: of the skb's), and
 * caches the result in the slot, which the key was assigned to. A shared route can only
 * lead to a neighbour: a route by a router may have other next hops for other sources.
 * Returns BPF_FIB_LKUP_RET_*; if the packet is too big, the slot has the route too.
 */
static __always_inline long route_lookup(void *ctx, struct route *w, const struct route_key *j,
					 __u32 longest)
{
	long rc = route_lookup_fib(ctx, w, j, longest);
	__u32 mtu;

	if (rc != BPF_FIB_LKUP_RET_SUCCESS && rc != BPF_FIB_LKUP_RET_NO_NEIGH)
		return rc;
	mtu = route_mtu(w);
	if (mtu && mtu < w->mtu)
		w->mtu = mtu;
	if (j->family == AF_INET6 && w->mtu < IPV6_LEAST_MTU)
		w->mtu = IPV6_LEAST_MTU;
	return longest > w->mtu ? BPF_FIB_LKUP_RET_FRAG_NEEDED : rc;
}

#endif
