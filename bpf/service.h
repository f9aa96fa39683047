/* SPDX-License-Identifier: GPL-2.0-only */
/* Which virtual service a packet is for (ip_vs_service_find). */
#ifndef IMBANG_SERVICE_H
#define IMBANG_SERVICE_H

#include "address.h"
#include "hook.h"
#include "maps.h"
#include "packet.h"
#include "scratch.h"

/* The packet's mark: what it brought, else what a rule says of its
 * destination. */
static __always_inline __u32 packet_mark(const struct packet *p, const struct settings *set)
{
	struct mark_key key;
	__u32 *mark;

	if (p->mark || !set->mark_rules)
		return p->mark;
	key.prefix_len = 128;
	key.addr = p->flow.dst;
	mark = bpf_map_lookup_elem(&marks, &key);
	return mark ? *mark : 0;
}

/* Linux takes its hooks away with the last service of a family. */
static __always_inline int in_use(const struct packet *p, const struct settings *set)
{
	return p->flow.family == AF_INET ? set->in_use4 : set->in_use6;
}

#define FTP_PORT 21
#define FTP_DATA_PORT 20
#define UNPRIVILEGED_PORT 1024

/* A data connection may belong to the FTP service of its address. */
static __always_inline int ftp_data(const struct packet *p, const struct settings *set)
{
	return set->ftps && p->flow.protocol == IPPROTO_TCP &&
	       (p->flow.dport == bpf_htons(FTP_DATA_PORT) ||
		bpf_ntohs(p->flow.dport) >= UNPRIVILEGED_PORT);
}

/* A mark comes first, then the exact address and port, then FTP, then every
 * port. */
static __always_inline struct service *service_find(const struct packet *p,
						    const struct settings *set,
						    struct service_key *key)
{
	struct service *s;

	__builtin_memset(key, 0, sizeof(*key));
	key->family = p->flow.family;
	if (set->fwmarks) {
		key->fwmark = packet_mark(p, set);
		if (key->fwmark) {
			s = bpf_map_lookup_elem(&services, key);
			if (s)
				return s;
			key->fwmark = 0;
		}
	}
	key->addr = p->flow.dst;
	key->protocol = p->flow.protocol;
	key->port = p->flow.dport;
	s = bpf_map_lookup_elem(&services, key);
	if (s)
		return s;
	if (ftp_data(p, set)) {
		key->port = bpf_htons(FTP_PORT);
		s = bpf_map_lookup_elem(&services, key);
		if (s)
			return s;
	}
	if (!set->port_zeros)
		return 0;
	key->port = 0;
	return bpf_map_lookup_elem(&services, key);
}

typedef __u64 __attribute__((may_alias)) word;

#define SERVICE_WORDS (offsetof(struct service, check) / sizeof(word))

/* A sum of a service's key and value: each word times an odd number of its own.
 * User space makes the same one (director/check.go). */
static __always_inline __u64 service_check(const word *key, const word *value)
{
	return key[0] * 0x7feb352d + key[1] * 0x58adbe67 + key[2] * 0x4c7f6dd1 +
	       value[0] * 0x68bc21eb + value[1] * 0x5c4bcea9 + value[2] * 0x735a2d97 +
	       value[3] * 0x31848bab + value[4] * 0x7a646e19 + value[5] * 0x66fe0cb5 + 1;
}

/*
 * Copies a service. Returns 0 if the copy is not a value that the key had: the
 * element was being reused. The sum needs no order among the reads, nor among
 * the kernel's writes of an element.
 */
static __always_inline int service_copy(const struct service_key *key, const struct service *at,
					struct service *copy)
{
	const volatile word *from = (const volatile word *)at;
	word *to = (word *)copy;

	_Static_assert(SERVICE_WORDS == 6 && sizeof(*key) == 3 * sizeof(word), "service_check");
	HOOK(SERVICE_FOUND);
	to[0] = from[0];
	HOOK(PICK_FOR);
	to[1] = from[1];
	to[2] = from[2];
	to[3] = from[3];
	to[4] = from[4];
	to[5] = from[5];
	to[6] = from[6];
	return copy->check == service_check((const word *)key, to);
}

enum service_found { SERVICE_NONE, SERVICE_FOUND, SERVICE_CHANGED };

static __noinline enum service_found service_try(const struct packet *p, const struct settings *set,
						 struct service *copy)
{
	struct service_key key __attribute__((aligned(8)));
	struct service *s = service_find(p, set, &key);

	if (!s)
		return SERVICE_NONE;
	return service_copy(&key, s, copy) ? SERVICE_FOUND : SERVICE_CHANGED;
}

/* The service that a packet is for, in *svc. SERVICE_CHANGED: whenever it was looked
 * for, it changed. */
static __always_inline enum service_found service_wanted(const struct packet *p,
							 const struct settings *set,
							 struct service **svc)
{
	struct scratch *room = scratch_of(p->peek);
	enum service_found found;
	struct service *copy;

	if (!room)
		return SERVICE_NONE;
	*svc = copy = &room->service;
	found = service_try(p, set, copy);
	if (found == SERVICE_CHANGED)
		found = service_try(p, set, copy);
	if (found == SERVICE_CHANGED)
		found = service_try(p, set, copy);
	return found;
}

#endif
