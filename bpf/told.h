/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What backups know of an entry: when it ends there, its state there, and whether it came
 * from another director. It lies in what is left of two words of struct conn, so that an
 * element of IPv4's table takes two cache lines; under the entry's lock.
 *
 * The end is a time in 16 bits, of a unit that depends on the entry's timeout: the timeout
 * (or 64 s, if it is shorter) has 2^13 to 2^14 units, and the time wraps around after four of
 * them or more. Times that are compared are less than half of that apart: the wheel looks at
 * each entry within 32 s, and forgets an end that is too long ago to matter (told_lapse);
 * with another timeout the end is not known, either (told_unknown). To the rule that is the
 * same: such an entry is told of again.
 */
#ifndef IMBANG_TOLD_H
#define IMBANG_TOLD_H

#include "kernel.h"
#include "types.h"

/* The bits of struct conn.number above TIMER_NUMBER. */
#define TOLD_REPLICA (1U << 28)
#define TOLD_STATE_SHIFT 29

/* In struct conn.told_end: how often backups were told again of the same end. */
#define TOLD_REPETITIONS 3U

/* The least time of which told_end has 2^13 units [ns]. */
#define TOLD_LEAST (64 * NSEC_PER_SEC)

/* A state in 3 bits: those that are told whatever the packets are not 0, and differ within
 * a protocol. */
#define TOLD_STATE(state) ((__u32)(state) + 5 & 7)
#define TOLD_DIFFERENT(a, b, c, d)                                           \
	(TOLD_STATE(a) && TOLD_STATE(b) && TOLD_STATE(c) && TOLD_STATE(d) && \
	 TOLD_STATE(a) != TOLD_STATE(b) && TOLD_STATE(a) != TOLD_STATE(c) && \
	 TOLD_STATE(a) != TOLD_STATE(d) && TOLD_STATE(b) != TOLD_STATE(c) && \
	 TOLD_STATE(b) != TOLD_STATE(d) && TOLD_STATE(c) != TOLD_STATE(d))
_Static_assert(TOLD_DIFFERENT(TCP_FIN_WAIT, TCP_TIME_WAIT, TCP_CLOSE, TCP_CLOSE_WAIT) &&
		       TOLD_DIFFERENT(SCTP_SHUTDOWN_SENT, SCTP_SHUTDOWN_RECEIVED,
				      SCTP_SHUTDOWN_ACK_SENT, SCTP_CLOSED),
	       "states are distinguishable");

/* The number of an entry's timer entry. */
static __always_inline __u32 conn_number(const struct conn *c)
{
	return c->number & TIMER_NUMBER;
}

static __always_inline void conn_set_number(struct conn *c, __u32 number)
{
	c->number = (c->number & ~TIMER_NUMBER) | number;
}

/* TOLD_STATE of the state that backups were told of; of a template whether it is assured. */
static __always_inline __u32 told_state(const struct conn *c)
{
	return c->number >> TOLD_STATE_SHIFT;
}

/* Whether the entry is as another director told, which told_end is of: no packet came
 * here. */
static __always_inline int told_replica(const struct conn *c)
{
	return !!(c->number & TOLD_REPLICA);
}

/* Notes what backups know from now on. */
static __always_inline void told_note(struct conn *c, __u16 end, __u32 state, int replica)
{
	c->told_end = end;
	c->number = conn_number(c) | state << TOLD_STATE_SHIFT | (replica ? TOLD_REPLICA : 0);
}

/* Backups' end of it is not known any more. */
static __always_inline void told_unknown(struct conn *c)
{
	c->told_end = 0;
}

/* The timeout that the unit depends on [ns]. */
static __always_inline __u64 told_timeout(const struct flow *flow, const struct conn *c,
					  const struct settings *set)
{
	if (flow->template)
		return c->timeout * NSEC_PER_SEC;
	return set ? set->timeout[c->state & 31] : 0;
}

/* The unit, as a power of two [ns]. */
static __always_inline __u32 told_unit(__u64 timeout)
{
	__u32 unit = 0, half;

	timeout = (timeout < TOLD_LEAST ? TOLD_LEAST : timeout) >> 14;
#pragma unroll
	for (half = 32; half; half >>= 1)
		if (timeout >> half) {
			timeout >>= half;
			unit += half;
		}
	return unit + 1;
}

/* A time [ns] as told_end has it, which is never 0. */
static __always_inline __u16 told_time(__u64 time, __u32 unit)
{
	__u16 short_time = (time >> unit) & ~TOLD_REPETITIONS;

	return short_time ? short_time : TOLD_REPETITIONS + 1;
}

/* At least each 32 s: forgets an end on backups that was a timeout ago. */
static __always_inline void told_lapse(struct conn *c, __u64 now, __u64 timeout)
{
	__u32 unit = told_unit(timeout);
	__s16 past = (__u16)(now >> unit) - c->told_end;

	if (timeout < TOLD_LEAST)
		timeout = TOLD_LEAST;
	if (!told_replica(c) && past >= (__s16)(timeout >> unit))
		told_unknown(c);
}

#endif
