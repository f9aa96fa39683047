/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the process that elects a master has written of this director and the others, as far
 * as more than failover.h depends on it.
 */
#ifndef IMBANG_PAIR_H
#define IMBANG_PAIR_H

#include "clock.h"
#include "maps.h"
#include "packet.h"

static __always_inline __u64 failover_word(enum failover_word word)
{
	__u32 i = word;
	__u64 *w = bpf_map_lookup_elem(&failover_words, &i);

	return w ? *(volatile __u64 *)w : 0;
}

static __always_inline int source_mac(struct __sk_buff *skb, __u8 *mac)
{
	return bpf_skb_load_bytes(skb, offsetof(struct ethhdr, h_source), mac, ETH_ALEN);
}

/* Whether another director sent it. */
__noinline int from_peer(struct __sk_buff *skb, const struct packet *p)
{
	struct link_address from = {};

	if (!p || source_mac(skb, from.mac))
		return 0;
	from.ifindex = p->ifindex;
	return !!bpf_map_lookup_elem(&peer_directors, &from);
}

/* Whether an address is guarded, and the lease of its group is over. */
static __always_inline int guard_is_stale(const union address *addr)
{
	__u32 *group = bpf_map_lookup_elem(&guarded, addr);
	__u64 *lease = group ? bpf_map_lookup_elem(&address_leases, group) : 0;

	return lease && *(volatile __u64 *)lease <= now_boot_ns();
}

/* Whether a server's packet may have been handed over by another director, which has the
 * virtual address now, or is one of those that the process knows. */
static __always_inline int may_be_handed(struct __sk_buff *skb, const struct packet *p,
					 const union address *virtual)
{
	union address key = *virtual; /* keys of Linux 6.1 lie on the stack */

	return guard_is_stale(&key) || (failover_word(FAILOVER_PEERS) && from_peer(skb, p));
}

#endif
