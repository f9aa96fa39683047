/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hairpins: connections of clients in the servers' own network. The server's
 * replies would go to such a client directly, and it would not know them. So
 * the server gets the packets from the director's own address and a port of
 * its choice, and answers there.
 */
#ifndef IMBANG_HAIRPIN_H
#define IMBANG_HAIRPIN_H

#include "element.h"
#include "replies.h"
#include "rng.h"

/* The ports to choose from, for each server and port. Those from 32768 on are
 * the director's own connections', say of a health check to this server. */
#define HAIRPIN_PORT 1024
#define HAIRPIN_PORTS (32768 - HAIRPIN_PORT)

/* So many are tried, from a random one on. */
#define HAIRPIN_TRIES 64

/* Both flows stay where they are: there is no room for them on the stack. */
struct hairpin_search {
	const struct flow *client;
	struct flow *reverse; /* of the server's replies */
	__u32 from;
	__u32 found;
};

static long hairpin_try(__u32 i, struct hairpin_search *s)
{
	struct flow client = *s->client;

	s->reverse->dport = bpf_htons(HAIRPIN_PORT + (s->from + i) % HAIRPIN_PORTS);
	/* First: by it hairpin_close finds the entry of the replies. */
	if (map_update(hairpins, &client, s->reverse, BPF_ANY))
		return 1;
	s->found = !reverse_enter(s->reverse, s->client, BPF_NOEXIST);
	return s->found;
}

/* The server's flow of a hairpin: 1 if a client's flow has one, and that is it. */
static __noinline int hairpin_leads(const struct flow *client, const struct flow *reverse)
{
	struct flow key = *client, *found = bpf_map_lookup_elem(&hairpins, &key);

	return found && flow_equal(found, reverse);
}

/* Makes the hairpin of a connection in the table: 0, or not. `reverse`: the flow of the
 * server's replies, on the caller's stack; without a port of the director's, it gets one. */
static __noinline int hairpin_open(const struct flow *client, struct flow *reverse)
{
	struct hairpin_search search = { .client = client, .reverse = reverse };

	if (!reverse->dst.word[0] && !reverse->dst.word[3])
		return -1;
	search.from = reverse->dport ? bpf_ntohs(reverse->dport) - HAIRPIN_PORT
				     : random_u32() % HAIRPIN_PORTS;
	bpf_loop(reverse->dport ? 1 : HAIRPIN_TRIES, hairpin_try, &search, 0);
	return search.found ? 0 : -1;
}

/* Deletes the hairpin of a connection that ends: 0, or an error. */
__noinline int hairpin_close(const struct flow *client)
{
	struct flow key, reverse, *found;
	long rc;

	if (!client)
		return 0;
	key = *client;
	found = bpf_map_lookup_elem(&hairpins, &key);
	if (!found)
		return 0;
	reverse = *found;
	rc = reverse_release(&reverse, &key);
	return rc ? rc : map_delete(hairpins, &key);
}

#endif
