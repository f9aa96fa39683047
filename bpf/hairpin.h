/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hairpins: connections of clients in the servers' own network. The server's
 * replies would go to such a client directly, and it would not know them. So
 * the server gets the packets from the director's own address and a port of
 * its choice, and answers there.
 */
#ifndef IMBANG_HAIRPIN_H
#define IMBANG_HAIRPIN_H

#include "replies.h"
#include "rng.h"

/* The ports to choose from, for each server and port. Those from 32768 on are
 * the director's own connections', say of a health check to this server. */
#define HAIRPIN_PORT 1024
#define HAIRPIN_PORTS (32768 - HAIRPIN_PORT)

/* So many are tried, from a random one on. */
#define HAIRPIN_TRIES 64

struct hairpin_search {
	struct flow client;
	struct flow reverse; /* of the server's replies */
	__u32 from;
	__u32 found;
};

static long hairpin_try(__u32 i, struct hairpin_search *s)
{
	s->reverse.dport = bpf_htons(HAIRPIN_PORT + (s->from + i) % HAIRPIN_PORTS);
	if (reverse_enter(&s->reverse, &s->client, BPF_NOEXIST))
		return 0;
	s->found = 1;
	return 1;
}

/* The server's flow of a hairpin: 1 if a client's flow has one, and that is it. */
static __noinline int hairpin_leads(const struct flow *client, const struct flow *reverse)
{
	struct flow key = *client, *found = bpf_map_lookup_elem(&hairpins, &key);

	return found && flow_equal(found, reverse);
}

/* Makes a hairpin for a client's flow that has none; 0, or an error. */
__noinline int hairpin_open(const struct flow *client, const struct server *s, __be16 port)
{
	struct hairpin_search search = {};
	struct flow *found;

	if (!client || !s)
		return -1;
	if (!s->source.word[0] && !s->source.word[3])
		return -1;
	search.client = *client;
	search.reverse = *client;
	search.reverse.src = s->addr;
	search.reverse.dst = s->source;
	search.reverse.sport = port;
	search.from = random_u32() % HAIRPIN_PORTS;
	bpf_loop(HAIRPIN_TRIES, hairpin_try, &search, 0);
	if (!search.found)
		return -1;
	if (!bpf_map_update_elem(&hairpins, &search.client, &search.reverse, BPF_NOEXIST))
		return 0;
	reverse_forget(&search.reverse);
	/* Another CPU may have been first, and have chosen another server. */
	found = bpf_map_lookup_elem(&hairpins, &search.client);
	return found && found->sport == port && address_equal(&found->src, &s->addr) ? 0 : -1;
}

/* The connection of a client's flow ends, or came to nothing. */
__noinline int hairpin_close(const struct flow *client)
{
	struct flow key, reverse, *found;

	if (!client)
		return 0;
	key = *client;
	found = bpf_map_lookup_elem(&hairpins, &key);
	if (!found)
		return 0;
	reverse = *found;
	/* Not another hairpin's: the entry may be that by now. */
	if (hairpin_leads(&key, &reverse))
		reverse_forget(&reverse);
	bpf_map_delete_elem(&hairpins, &key);
	return 0;
}

#endif
