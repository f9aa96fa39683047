/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The route cache: results of the kernel's routing and neighbour tables.
 *
 * A look-up there costs as much as everything else that a packet of an
 * established connection needs. So each CPU caches a result for ROUTE_LIFETIME. That is
 * how long a change of routes or neighbours may take to become effective, whatever
 * changed: no notification is needed, and changes of other routes cost nothing.
 *
 * A cached route serves as many packets as it can:
 *
 * 1. If the next hop is a router, it serves all sources and the block of destinations
 *    that have the same covering prefixes in the kernel's table (fib.h).
 * 2. If the next hop is the destination itself, it serves all sources.
 * 3. If the kernel chooses one of several next hops by addresses, or if the route was
 *    not found in the kernel's main table, the shared element only says so (`fits` is
 *    0), and each pair of addresses has an element of its own. Likewise for packets that are
 *    longer than the least path MTU, where the kernel has path MTUs of single addresses.
 * 4. If routes may depend on more than the destination (sources.h), each pair of
 *    addresses has an element of its own.
 *
 * A number in the connection's entry would find the next hop with fewer steps, but each
 * change of any route would have to invalidate all of them.
 *
 * Which element has the block of an address is known from the length of blocks near it:
 * `blocks` of struct routing has the longest prefix of the last second for all addresses
 * with the same beginning (or a colliding one). An element says itself which addresses
 * it serves, so a wrong length costs a look-up and no more.
 */
#ifndef IMBANG_ROUTE_H
#define IMBANG_ROUTE_H

#include "address.h"
#include "clock.h"
#include "fib.h"
#include "maps.h"
#include "packet.h"
#include "scratch.h"
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

/* In an element of `blocks`, behind the second in which it was written. */
#define BLOCK_LENGTH 0x7f
#define BLOCK_SECOND_SHIFT 30 /* 2^30 ns */
#define BLOCK_EXACT 65        /* a whole IPv6 address */

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

static __always_inline __u32 route_hash(const struct route_key *j, __u32 mix)
{
	mix += j->ifindex << 24 ^ j->protocol << 16 ^ j->tos << 8;
	return hash_32(mix, ROUTE_CACHE_BITS);
}

/* The slot of a pair of addresses. */
static __always_inline __u32 route_slot_own(const struct route_key *j)
{
	return route_hash(j, address_fold(&j->src, j->family) * 0x9e3779b1U +
				     address_fold(&j->dst, j->family));
}

/* The bits of the destination that blocks differ in, from the top. */
static __always_inline __u64 route_prefix(const struct route_key *j)
{
	return j->family == AF_INET ? (__u64)bpf_ntohl(address_to4(&j->dst)) << 32
				    : half(j->dst.word);
}

/* The element of `blocks`: for the first 16 bits of an IPv4 address, or 48 of IPv6. */
static __always_inline __u32 route_vicinity(const struct route_key *j, __u64 prefix)
{
	prefix >>= j->family == AF_INET ? 48 : 16;
	return hash_32(prefix ^ prefix >> 32, BLOCK_BITS);
}

/* The slot of the block. 0 is the length of blocks that is not known. */
static __always_inline __u32 route_slot_shared(const struct route_key *j,
					       const struct routing *known)
{
	__u64 prefix = route_prefix(j);
	__u32 length = known->blocks[route_vicinity(j, prefix)] & BLOCK_LENGTH;

	if (length - 1 >= 64)
		return route_hash(j, address_fold(&j->dst, j->family));
	prefix >>= (64 - length) & 63;
	return route_hash(j, prefix ^ prefix >> 32);
}

static __always_inline int route_matches(const struct route *w, const struct route_key *j)
{
	const __u64 *a = (const void *)&w->of, *b = (const void *)j;
	const __u64 *block = (const void *)&w->block;

	_Static_assert(sizeof(*j) == 5 * sizeof(*a), "compared word by word");
	return !((((a[0] ^ b[0]) | (a[1] ^ b[1])) & w->source) | ((a[2] ^ b[2]) & block[0]) |
		 ((a[3] ^ b[3]) & block[1]) | (a[4] ^ b[4]));
}

/* Whether the cached route of a packet is known. */
static __always_inline int route_is_fresh(const struct route *w, const struct route_key *j)
{
	return route_matches(w, j) && time_coarse() < w->until;
}

/* Whether a packet of so many bytes can go as an earlier one did. A length of
 * 0 is not known. */
static __always_inline int route_fits(const struct route *w, __u32 longest)
{
	return longest - 1 < w->fits;
}

/* Assigns a slot to a key, shared by all sources or not. */
static __always_inline void route_claim(struct route *w, const struct route_key *j, __u32 slot,
					int all)
{
	__u64 *block = (void *)&w->block;

	if (!route_matches(w, j)) {
		w->until = 0;
		barrier();
		w->ask = 0;
		w->slot = slot;
	}
	w->fits = 0;
	w->of = *j;
	w->source = all ? 0 : ~0ULL;
	block[0] = ~0ULL;
	block[1] = ~0ULL;
}

/* route_lookup without the MTU that the route may have of its own. A packet that is too
 * big gets a look-up for a short one too, which says where the route leads. */
static __always_inline long route_lookup_fib(void *ctx, struct route *w, const struct route_key *j,
					     __u32 longest)
{
	struct scratch *room = get_scratch(SCRATCH_PACKET);
	struct bpf_fib_lookup *fib;
	long rc;
	__u16 mtu;
	__u64 now;

	if (!room)
		return -ENOMEM;
	fib = &room->lookup;
	__builtin_memset(fib, 0, sizeof(*fib));
	fib->family = j->family;
	fib->l4_protocol = j->protocol;
	fib->ifindex = j->ifindex;
	fib->tot_len = longest > 0xffff ? 0xffff : longest;
	if (j->family == AF_INET) {
		fib->tos = j->tos;
		fib->ipv4_src = address_to4(&j->src);
		fib->ipv4_dst = address_to4(&j->dst);
	} else {
		__builtin_memcpy(fib->ipv6_src, &j->src, sizeof(j->src));
		__builtin_memcpy(fib->ipv6_dst, &j->dst, sizeof(j->dst));
	}
	rc = bpf_fib_lookup(ctx, fib, sizeof(*fib), 0);
	mtu = fib->mtu_result;
	if (rc == BPF_FIB_LKUP_RET_FRAG_NEEDED) {
		fib->tot_len = 1;
		rc = bpf_fib_lookup(ctx, fib, sizeof(*fib), 0);
	}
	w->known = rc == BPF_FIB_LKUP_RET_SUCCESS;
	w->ifindex = fib->ifindex;
	w->mtu = mtu;
	__builtin_memcpy(w->dmac, fib->dmac, sizeof(w->dmac));
	__builtin_memcpy(w->smac, fib->smac, sizeof(w->smac));
	/* A router may be of the other family (RFC 8950). */
	if (fib->family == AF_INET)
		address_from4(&w->next, fib->ipv4_dst);
	else
		__builtin_memcpy(&w->next, fib->ipv6_dst, sizeof(w->next));
	w->peer = !!bpf_map_lookup_elem(&peers, &fib->ifindex);
	now = now_coarse_ns();
	w->ask |= !w->known || now - w->asked >= NEIGHBOUR_REFRESH;
	if (w->ask)
		w->asked = now;
	w->until = w->known ? now + ROUTE_LIFETIME : 0;
	return rc;
}

/* Writes the block of a route that was found in the kernel's table. */
static __always_inline __u32 route_widen(struct route *w, const struct fib_search *found)
{
	__u64 free = found->free;

	if (found->direct || found->exact)
		return BLOCK_EXACT;
	if (w->of.family == AF_INET) {
		w->block.word[3] = ~bpf_htonl(free);
		return 32 - __builtin_popcountll(free & 0xffffffff);
	}
	w->block.word[0] = ~bpf_htonl(free >> 32);
	w->block.word[1] = ~bpf_htonl(free);
	w->block.word[2] = 0;
	w->block.word[3] = 0;
	return 64 - __builtin_popcountll(free);
}

/* Stores the length of a block, unless there was a longer one this second. */
static __always_inline void route_remember(struct routing *known, const struct route_key *j,
					   __u32 length)
{
	__u16 *block = &known->blocks[route_vicinity(j, route_prefix(j))];
	__u16 second = now_coarse_ns() >> BLOCK_SECOND_SHIFT << 7;
	__u16 was = *block;

	if ((was & ~BLOCK_LENGTH) != second || (was & BLOCK_LENGTH) < length)
		*block = second | length;
}

/*
 * Finds the route's own MTU and the packets that the cached route serves. A route that is
 * not found in the kernel's table serves all sources if the next hop is the destination.
 * Global, so that the verifier walks it once.
 */
__noinline int route_share(struct route *w)
{
	struct scratch *room = get_scratch(SCRATCH_PACKET);
	__u32 length = BLOCK_EXACT;
	struct routing *known;
	struct fib_search *found;
	int in_table;

	if (!w || !room)
		return 0;
	known = routing_of(w->of.family);
	found = &room->fib;
	in_table = fib_find(found, known, w);
	if (in_table && found->mtu && found->mtu < w->mtu)
		w->mtu = found->mtu;
	if (w->of.family == AF_INET6 && w->mtu < IPV6_LEAST_MTU)
		w->mtu = IPV6_LEAST_MTU;
	w->fits = w->source ? w->mtu : 0;
	if (w->source || !known->alike)
		return 0;
	if (in_table) {
		length = route_widen(w, found);
		w->fits = found->fits < w->mtu ? found->fits : w->mtu;
	} else if (address_equal(&w->next, &w->of.dst)) {
		w->fits = w->mtu;
	}
	route_remember(known, &w->of, length ? length : 1);
	return 0;
}

/* Assigns a slot to a key, shared by all sources or not, and asks the kernel. Returns
 * BPF_FIB_LKUP_RET_*. */
static __always_inline int route_ask(void *ctx, enum hook hook, const struct route_key *j,
				     __u32 longest, __u32 slot, int all)
{
	struct route *w = route_at(slot);

	if (!w || !j)
		return -ENOMEM;
	route_claim(w, j, slot, all);
	sources_ask(ctx, hook, j->family);
	return route_lookup_fib(ctx, w, j, longest);
}

/* Global, so that the verifier walks it once; one for each kind of context. */
__noinline int route_ask_skb(struct __sk_buff *skb, const struct route_key *j, __u32 longest,
			     __u32 slot, int all)
{
	return route_ask(skb, HOOK_TC, j, longest, slot, all);
}

__noinline int route_ask_xdp(struct xdp_md *xdp, const struct route_key *j, __u32 longest,
			     __u32 slot, int all)
{
	return route_ask(xdp, HOOK_XDP, j, longest, slot, all);
}

/*
 * Looks the route up for a packet of so many bytes (0: of the skb's), and
 * caches the result in the slot, which is assigned to the key, for all sources or not.
 * Returns BPF_FIB_LKUP_RET_*; if the packet is too big, the slot has the route too.
 */
static __always_inline long route_lookup(void *ctx, enum hook hook, struct route *w,
					 const struct route_key *j, __u32 longest, __u32 slot,
					 int all)
{
	long rc = hook == HOOK_XDP ? route_ask_xdp(ctx, j, longest, slot, all)
				   : route_ask_skb(ctx, j, longest, slot, all);

	if (rc != BPF_FIB_LKUP_RET_SUCCESS && rc != BPF_FIB_LKUP_RET_NO_NEIGH)
		return rc;
	route_share(w);
	if (!longest)
		w->until = 0;
	return longest > w->mtu ? BPF_FIB_LKUP_RET_FRAG_NEEDED : rc;
}

#endif
