/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One build of the data plane hands over to another. The programs that are
 * attached go on as the new build's, on all devices at once: by one word in
 * their settings (`successor`), upon which each calls the new program of its
 * entry. Timers of the earlier build end at the same word.
 *
 * If the connection table has another layout, its entries are taken over after
 * that (adopt.h). Meanwhile a packet may be of a connection that is not in the
 * new table yet: it is dropped, as a packet that is lost, for neither the
 * kernel's stack, which would reset the connection, nor the scheduler, which
 * would choose another server, may have it.
 */
#ifndef IMBANG_UPGRADE_H
#define IMBANG_UPGRADE_H

#include "conn_packet.h"
#include "maps.h"
#include "replies.h"
#include "service.h"
#include "settings.h"

/* Calls the next build's program of an entry, if it is to go on; returns if not. */
#define HAND_OVER(ctx, map, entry)                            \
	do {                                                  \
		if (get_settings()->successor)                \
			bpf_tail_call((ctx), (map), (entry)); \
	} while (0)

struct sender_search {
	union address addr;
	int found;
};

static long sender_look(__u32 id, struct sender_search *s)
{
	struct server *server = server_of(id);

	s->found =
		server && replies_return(server->forward) && address_equal(&server->addr, &s->addr);
	return s->found;
}

/* Whether a packet may be the reply of a server whose connections had entries of their replies: the
 * earlier build has those. Only for packets to no service, as it looks at all servers. */
static __noinline int sent_by_server(const struct packet *p)
{
	struct sender_search s = { .addr = p->flow.src };

	if (state.listed && !begins(p))
		bpf_loop(get_settings()->servers, sender_look, &s, 0);
	return s.found;
}

/* Whether a packet of no known connection may be of one that is still to be
 * adopted: a server's reply, or a client's packet that does not open one. The
 * first packet of a persistent client may have a template there. */
__noinline int awaits_adoption(const struct packet *p)
{
	struct settings *set = get_settings();
	struct service *svc;

	if (!p || !set->adopting || p->peek)
		return 0;
	if (reply_owner_of(&p->flow))
		return 1;
	switch (service_wanted(p, set, &svc)) {
	case SERVICE_NONE:
		return sent_by_server(p);
	case SERVICE_CHANGED:
		return 1;
	case SERVICE_FOUND:
		break;
	}
	if (svc->template)
		return 1;
	if (svc->flags & SVC_ONE_PACKET && p->flow.protocol == IPPROTO_UDP)
		return 0;
	return !opens_connection(p);
}

#endif
