/* SPDX-License-Identifier: GPL-2.0-only */
/* Which virtual service a packet is for (ip_vs_service_find). */
#ifndef IMBANG_SERVICE_H
#define IMBANG_SERVICE_H

#include "address.h"
#include "maps.h"
#include "packet.h"

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

#endif
