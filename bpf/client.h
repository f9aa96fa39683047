/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How many connections a client has, for the setting client_share. A client is an IPv4
 * address or an IPv6 /64, of which one host has all addresses.
 *
 * The counts are those of a fixed number of slots, which clients share by a keyed hash. A
 * client is thus counted too high by what others have in its slot, on average the table's
 * connections / CLIENT_SLOTS, and refused too early if it shares the slot with one of the
 * n clients that have about as much as they may: with probability n / CLIENT_SLOTS. CPUs
 * that open connections at the same moment may exceed the share by one each. Connections
 * that were there when the setting was made are not counted; their ends do not make a count
 * less than 0. Without the setting nothing is counted.
 */
#ifndef IMBANG_CLIENT_H
#define IMBANG_CLIENT_H

#include "address.h"
#include "maps.h"
#include "packet.h"
#include "siphash.h"

/* The shares that the setting counts in. */
#define CLIENT_SHARES 1000

/* The network that stands for a client. */
static __always_inline void client_network(const union address *client, union address *network)
{
	*network = *client;
	if (address_family(client) == AF_INET)
		return;
	network->word[2] = 0;
	network->word[3] = 0;
}

static __always_inline __s32 *client_count(const union address *client)
{
	struct flow network = { .family = address_family(client) };
	__u32 slot;

	client_network(client, &network.src);
	slot = siphash_flow(&network, 0) % CLIENT_SLOTS;
	return bpf_map_lookup_elem(&client_counts, &slot);
}

/* A client has n more connections. */
static __always_inline void client_counted(const union address *client, __s32 n)
{
	__s32 *count = client_count(client);

	if (count && (n > 0 || *count > 0))
		__sync_fetch_and_add(count, n);
}

/* Whether the client of a packet has as many connections as it may. */
static __noinline int client_full(const struct packet *p, const struct settings *set)
{
	__u32 room = set->room[p->flow.family == AF_INET6];
	__s32 *count;

	if (!set->client_share || !room)
		return 0;
	count = client_count(&p->flow.src);
	return count && *count > (__s64)room * set->client_share / CLIENT_SHARES - 1;
}

#endif
