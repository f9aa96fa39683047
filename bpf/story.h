/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a trace shows of the current packet, while a command traces. It is
 * too long for the stack: each function stores the part that it knows here,
 * and trace.h emits the whole.
 */
#ifndef IMBANG_STORY_H
#define IMBANG_STORY_H

#include "by_id.h"
#include "clock.h"
#include "maps.h"
#include "packet.h"
#include "sched/contract.h"
#include "scratch.h"

/* Whether anybody traces. */
static __always_inline int traced(void)
{
	return listened(LISTENERS_TRACE);
}

static __always_inline struct explanation *story_of(const struct packet *p)
{
	struct scratch *room = scratch_of(p->peek);

	return room ? &room->story : 0;
}

/* Describes a server as it is now. */
static __always_inline void contender_now(struct contender *c, __u32 id)
{
	struct server *s = server_far(id);
	struct load *l = load_far(id);

	c->id = NO_SERVER;
	if (!s || !l)
		return;
	c->id = id;
	c->addr = s->addr;
	c->port = s->port;
	c->forward = s->forward;
	c->weight = s->weight;
	c->active = l->active;
	c->inactive = l->inactive;
	c->overloaded = overloaded(l);
}

#endif
