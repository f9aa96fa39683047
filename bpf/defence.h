/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The defence modes (update_defense_level of ip_vs_ctl.c): drop_packet is
 * here, secure_tcp in tcp.h, drop_entry in sweep.h.
 *
 * Linux's automatic modes go by the machine's free memory. A program cannot ask
 * for that; what runs out here is the room for connections, and they go by it.
 */
#ifndef IMBANG_DEFENCE_H
#define IMBANG_DEFENCE_H

#include "clock.h"
#include "maps.h"
#include "packet.h"

/* For how long a packet that found no room keeps automatic defences at work. */
#define DEFENCE_LINGER (2 * NSEC_PER_SEC)

/* Whether the automatic defences work now. */
static __noinline int defence_alarmed(void)
{
	return state.defence.until > now_coarse_ns();
}

/* There is no room for a connection. */
static __noinline void defence_alarm(void)
{
	struct defence *d = &state.defence;
	__u64 now = now_coarse_ns();

	if (d->until < now)
		d->full_since = now;
	d->until = now + DEFENCE_LINGER;
}

static __always_inline int defence_works(__u32 mode)
{
	return mode && (mode == DEFENCE_ALWAYS || defence_alarmed());
}

/* Whether it is the turn of a packet that would be scheduled to be dropped: one
 * in `rate`, the first at once (ip_vs_todrop). A question takes no turn. */
__noinline int drop_turn(__u32 rate, __u32 peek)
{
	struct defence *d = &state.defence;
	__s32 left;

	if (!rate)
		return 0;
	if (peek)
		return d->packets <= 1;
	left = __sync_fetch_and_add(&d->packets, -1) - 1;
	if (left > 0)
		return 0;
	d->packets = rate;
	return 1;
}

static __always_inline int drop_packet(const struct packet *p, const struct settings *set)
{
	return defence_works(set->drop_packet) && drop_turn(set->am_droprate, p->peek);
}

#endif
