/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Is this a SYN flood? One shows by connections that stay half open. How many
 * there are is reckoned from what begins and what goes on, less what is likely
 * to have expired since, and judged at each tick: an error of
 * the count does not last. While clients are challenged, SYNs that get
 * no answer count for the connections that they would have opened.
 *
 * A handshake goes on when the server has spoken and the client has acknowledged that. The
 * acknowledgement may be made up, and where replies do not return to the director there is
 * nothing else; so a flood also shows by the number of unproven connections (proof.h), which
 * may be half of the room.
 */
#ifndef IMBANG_ATTACK_H
#define IMBANG_ATTACK_H

#include "clock.h"
#include "crowd.h"
#include "forward/method.h"
#include "packet.h"
#include "settings.h"

/* An attack is over when it has not looked like one for so long. */
#define ATTACK_LINGER (5 * NSEC_PER_SEC)

/* Of the half-open, this part is forgotten at each tick: half of them in 48 s,
 * as SYN_RECV lasts for 60. */
#define HALF_OPEN_DECAY 10

/* Rates are averaged over so many ticks, about a second. */
#define RATE_AVERAGE 4
#define TICKS_PER_SEC 15

/* How long a half-open connection lives [s]. */
#define HALF_OPEN_LIFE 60

#define HANDSHAKE_CPUS 1024

static __always_inline struct handshake_counts *get_handshakes(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&handshakes, &zero);
}

static __always_inline int tcp_half_open(__u8 state)
{
	return state == TCP_SYN_RECV || state == TCP_SYNACK;
}

/* Whether a connection is of TCP and its handshake may be a made up client's. */
static __always_inline int handshake_open(__u8 state, __u8 flags, __u8 forward)
{
	if (state >= TCP_STATES || state == TCP_CLOSE || !(flags & CONN_UNPROVEN))
		return 0;
	return tcp_half_open(state) || (replies_return(forward) && !(flags & CONN_ASSURED));
}

/* A packet has changed whether its connection's handshake is open. Not inline: callers have
 * no room left on their stack. */
static __noinline void handshake_follow(int was, int now)
{
	struct handshake_counts *h;

	if (was == now)
		return;
	h = get_handshakes();
	if (!h)
		return;
	if (now)
		h->opened++;
	else
		h->answered++;
}

static long handshakes_add(__u32 cpu, struct handshake_counts *sum)
{
	__u32 zero = 0;
	struct handshake_counts *h = bpf_map_lookup_percpu_elem(&handshakes, &zero, cpu);

	if (!h)
		return 1;
	sum->opened += h->opened;
	sum->answered += h->answered;
	sum->challenged += h->challenged;
	sum->proofs += h->proofs;
	return 0;
}

/* An average follows what a tick brought. */
static __always_inline void attack_average(__u64 *average, __s64 n)
{
	__s64 rate = (n > 0 ? n * TICKS_PER_SEC : 0) << RATE_SHIFT;

	*average += (rate - (__s64)*average) >> RATE_AVERAGE;
}

/* What has happened since the last tick. */
static __always_inline void attack_follow(struct attack *a, const struct handshake_counts *now)
{
	__s64 more = (now->opened - a->last.opened) - (now->answered - a->last.answered);
	__s64 half_open = a->half_open + (more << HALF_OPEN_SHIFT);
	__s64 challenged = now->challenged - a->last.challenged;

	if (half_open < 0)
		half_open = 0;
	a->half_open = half_open - (half_open >> HALF_OPEN_DECAY);
	attack_average(&a->rate, challenged);
	attack_average(&a->lacking, challenged - (__s64)(now->proofs - a->last.proofs));
	a->last = *now;
}

/* Once there is an attack, half as much is one still. */
static __always_inline int attack_suspect(const struct attack *a, __u32 limit)
{
	__u64 half_open = a->half_open >> HALF_OPEN_SHIFT;
	__u64 lacking = (a->lacking >> RATE_SHIFT) * HALF_OPEN_LIFE;

	if (!limit)
		return 0;
	if (a->since)
		limit /= 2;
	return half_open > limit || lacking > limit;
}

/* Likewise, of a family's unproven connections, if there is room for so many. */
static __always_inline int attack_crowded(const struct attack *a, const struct crowding *crowds,
					  __u32 room)
{
	return room && crowds->tcp > (a->since ? room / 4 : room / 2);
}

/* Whether clients are challenged. */
static __always_inline int challenging(const struct settings *set)
{
	if (set->syn_defence != DEFENCE_AUTOMATIC)
		return set->syn_defence == DEFENCE_ALWAYS;
	return !!state.attack.since;
}

/* At each tick. */
__noinline int attack_judge(__u64 now)
{
	struct settings *set = get_settings();
	struct attack *a = &state.attack;
	struct handshake_counts sum = {};

	bpf_loop(HANDSHAKE_CPUS, handshakes_add, &sum, 0);
	attack_follow(a, &sum);
	crowds_count(set);
	if (attack_suspect(a, set->half_open_limit) ||
	    (set->half_open_limit && (attack_crowded(a, &a->crowds[0], set->room[0]) ||
				      attack_crowded(a, &a->crowds[1], set->room[1])))) {
		a->suspected = now;
		if (!a->since) {
			a->since = a->began = now;
			a->number++;
		}
	} else if (a->since && now - a->suspected > ATTACK_LINGER) {
		a->since = 0;
		a->ended = now;
	}
	return 0;
}

#endif
