/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fragments are forwarded as they come: the first one has the ports, and
 * tells which connection the others are of. One that overtakes the first is
 * of no known connection.
 */
#ifndef IMBANG_FRAGMENT_H
#define IMBANG_FRAGMENT_H

#include "clock.h"
#include "element.h"
#include "maps.h"
#include "packet.h"

/* A fragmented packet is put together within (RFC 8200, 4.5) [ns]. */
#define FRAGMENT_LIFETIME (60 * NSEC_PER_SEC)

static __always_inline void fragment_key(const struct packet *p, struct fragment_key *key)
{
	key->src = p->flow.src;
	key->dst = p->flow.dst;
	key->id = p->id;
	/* In IPv6 options may be in the first fragment and before what follows:
	 * the others do not say what that is. */
	key->protocol = p->flow.family == AF_INET ? p->flow.protocol : 0;
	key->family = p->flow.family;
	key->pad = 0;
}

/* Remembers of which connection a first fragment is, or for which server
 * without one. */
__noinline int fragment_note(const struct packet *p, const struct flow *client, __u32 direction,
			     __u32 server)
{
	struct fragment value = { .expires = now_coarse_ns() + FRAGMENT_LIFETIME };
	struct fragment_key key;

	if (!p || !client)
		return 0;
	fragment_key(p, &key);
	value.client = *client;
	value.direction = direction;
	value.server = server;
	(void)map_update(fragments, &key, &value, BPF_ANY);
	return 0;
}

/* What its first fragment was. */
static __always_inline struct fragment *fragment_find(const struct packet *p)
{
	struct fragment *f;
	struct fragment_key key;

	fragment_key(p, &key);
	f = bpf_map_lookup_elem(&fragments, &key);
	return f && f->expires > now_coarse_ns() ? f : 0;
}

#endif
