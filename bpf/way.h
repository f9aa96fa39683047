/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Ways: where the kernel's routing and neighbour tables send packets, as they
 * said a moment ago.
 *
 * Asking them costs as much as everything else that a packet of a settled
 * connection needs, and packets of one way follow each other closely. So each
 * CPU remembers, for WAY_BELIEVED, what it was told. That is how long a change
 * of routes or neighbours may take to be obeyed; nobody has to tell of it. All
 * sources share a way where it does not depend on them (sources.h).
 */
#ifndef IMBANG_WAY_H
#define IMBANG_WAY_H

#include "address.h"
#include "clock.h"
#include "maps.h"
#include "packet.h"
#include "sources.h"

#define WAY_BELIEVED (NSEC_PER_SEC / 128)

/* Of the type of service; the rest tells of congestion (RFC 3168), not of ways. */
#define DSCP 0xfc

/*
 * Writing a neighbour's hardware address into a packet leaves the kernel to
 * believe in it for ever; a packet sent through its neighbour table makes it
 * ask again when the entry is old. In each slot somebody's neighbour is asked
 * when none was for so long. (By turns, not by chance: a simulation is to come
 * out the same on every CPU.)
 */
#define WAY_ASKED (NSEC_PER_SEC / 4)

/* How long sources have ways of their own once a router was found to be next. */
#define WAY_APART NSEC_PER_SEC

static __always_inline void journey(struct journey *j, const struct packet *p,
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

static __always_inline struct way *way_at(__u32 slot)
{
	return bpf_map_lookup_elem(&ways, &slot);
}

/* Where a journey's way is remembered, if it is: with those of all sources, or
 * of its own. */
static __always_inline __u32 way_slot(const struct journey *j, int all)
{
	__u32 mix = all ? 0 : address_fold(&j->src, j->family) * 0x9e3779b1U;

	mix += address_fold(&j->dst, j->family);
	mix += j->ifindex << 24 ^ j->protocol << 16 ^ j->tos << 8;
	return hash_32(mix, WAYS_BITS);
}

static __always_inline int way_is_of(const struct way *w, const struct journey *j, int all)
{
	const __u64 *a = (const void *)&w->of, *b = (const void *)j;

	_Static_assert(sizeof(*j) == 5 * sizeof(*a), "compared word by word");
	return a[2] == b[2] && a[3] == b[3] && a[4] == b[4] && w->all == all &&
	       (all || (a[0] == b[0] && a[1] == b[1]));
}

/* Whether a packet of so many bytes can go as an earlier one did. A length of
 * 0 is not known. */
static __always_inline int way_fits(struct way *w, const struct journey *j, int all, __u32 longest)
{
	if (!way_is_of(w, j, all) || time_coarse() >= w->until || longest - 1 >= w->mtu)
		return 0;
	return 1;
}

/* Whether what would be everybody's way was found not to be. */
static __always_inline int way_is_apart(const struct way *w, const struct journey *j)
{
	return way_is_of(w, j, 1) && time_coarse() < w->apart;
}

/* Makes a slot a journey's. A function, for the stack's sake. */
static __noinline void way_claim(struct way *w, const struct journey *j, __u32 slot, int all)
{
	if (!way_is_of(w, j, all)) {
		w->until = 0;
		barrier();
		w->ask = 0;
		w->apart = 0;
		w->all = all;
		w->slot = slot;
	}
	w->of = *j;
}

/*
 * Asks the tables, for a packet of so many bytes (0: of the skb's), and
 * remembers what they say, in the journey's own slot. Everybody's way can only
 * lead to a neighbour: a route by a router may have others for other sources.
 * Returns BPF_FIB_LKUP_RET_*.
 */
static __noinline long way_look(void *ctx, struct way *w, const struct journey *j, __u32 longest)
{
	struct bpf_fib_lookup fib = {};
	__u64 now;
	long rc;

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
	w->known = rc == BPF_FIB_LKUP_RET_SUCCESS;
	w->ifindex = fib.ifindex;
	w->mtu = fib.mtu_result;
	__builtin_memcpy(w->dmac, fib.dmac, sizeof(w->dmac));
	__builtin_memcpy(w->smac, fib.smac, sizeof(w->smac));
	/* A router may be of the other family (RFC 8950). */
	if (fib.family == AF_INET)
		address_from4(&w->next, fib.ipv4_dst);
	else
		__builtin_memcpy(&w->next, fib.ipv6_dst, sizeof(w->next));
	w->peer = !!bpf_map_lookup_elem(&peers, &fib.ifindex);
	now = bpf_ktime_get_coarse_ns();
	w->ask |= !w->known || now - w->asked >= WAY_ASKED;
	if (w->ask)
		w->asked = now;
	w->until = w->known ? now + WAY_BELIEVED : 0;
	if (w->all && !address_equal(&w->next, &w->of.dst)) {
		w->until = 0;
		w->apart = now + WAY_APART;
	}
	return rc;
}

#endif
