/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What backups know of an entry: when it ends there, its state there, and whether it came
 * from another director. It has 20 bits, so that an entry of IPv4 takes one cache line; under the
 * claim.
 *
 * The end is a time in 16 bits, of ticks of 67 ms (of 2, 4, 8 or more ticks if the entry's
 * timeout is longer than 18, 36, 73 min), and wraps around after four timeouts at most and 73
 * min at least. Times that are compared are less than half of that apart: the sweep looks at
 * each entry within 32 s, and forgets an end that is a timeout ago (told_lapse). To the rule
 * that is the same: such an entry is told of again. An end that was noted before the timeout
 * of its state was changed across one of those limits may be misread, once: then backups are
 * told up to a timeout too early or too late.
 *
 * A replica's end is always in ticks. The sweep also notices that packets have moved it: then
 * it is not known any more. A template that lives on for its connections alone is as a replica,
 * until a packet moves its end: masters tell of it as of one whose end is not known.
 */
#ifndef IMBANG_TOLD_H
#define IMBANG_TOLD_H

#include "clock.h"
#include "types.h"

/* The bits of struct conn.told. */
#define TOLD_REPLICA 1U
#define TOLD_STATE_SHIFT 1

/* In struct conn.told_end: how often backups were told again of the same end. */
#define TOLD_REPETITIONS 3U

/* Timeouts up to here have ticks as their unit: 2^14 of them [ns]. */
#define TOLD_LEAST ((1ULL << (TICK_SHIFT + 14)) - 1)

/* How exactly a replica's end is known [ticks]: as its last packet's time, EXPIRY_SLACK. */
#define TOLD_SLACK 5

#define STATE_BIT(state) (1U << (state))

/* States that are told (ip_vs_sync_conn_needed). */
#define TOLD_STATES                                                                    \
	(STATE_BIT(TCP_ESTABLISHED) | STATE_BIT(TCP_FIN_WAIT) | STATE_BIT(TCP_CLOSE) | \
	 STATE_BIT(TCP_CLOSE_WAIT) | STATE_BIT(TCP_TIME_WAIT) | STATE_BIT(CONN_UDP) |  \
	 STATE_BIT(SCTP_ESTABLISHED) | STATE_BIT(SCTP_SHUTDOWN_SENT) |                 \
	 STATE_BIT(SCTP_SHUTDOWN_RECEIVED) | STATE_BIT(SCTP_SHUTDOWN_ACK_SENT) |       \
	 STATE_BIT(SCTP_CLOSED))

/* One of these states in 3 bits: those that are told whatever the packets are not 0, and
 * differ within a protocol. */
#define TOLD_STATE(state) (((__u32)(state) + 5) & 7)
#define TOLD_DIFFERENT(a, b, c, d)                                           \
	(TOLD_STATE(a) && TOLD_STATE(b) && TOLD_STATE(c) && TOLD_STATE(d) && \
	 TOLD_STATE(a) != TOLD_STATE(b) && TOLD_STATE(a) != TOLD_STATE(c) && \
	 TOLD_STATE(a) != TOLD_STATE(d) && TOLD_STATE(b) != TOLD_STATE(c) && \
	 TOLD_STATE(b) != TOLD_STATE(d) && TOLD_STATE(c) != TOLD_STATE(d))
_Static_assert(TOLD_DIFFERENT(TCP_FIN_WAIT, TCP_TIME_WAIT, TCP_CLOSE, TCP_CLOSE_WAIT) &&
		       TOLD_DIFFERENT(SCTP_SHUTDOWN_SENT, SCTP_SHUTDOWN_RECEIVED,
				      SCTP_SHUTDOWN_ACK_SENT, SCTP_CLOSED),
	       "states are distinguishable");

/* A state as it is noted: 0 if it is none that is told. */
static __always_inline __u32 told_code(__u8 state)
{
	return TOLD_STATES & STATE_BIT(state & 31) ? TOLD_STATE(state) : 0;
}

/* The state that backups were told of (told_code); of a template whether it is assured. */
static __always_inline __u32 told_state(const struct conn *c)
{
	return c->told >> TOLD_STATE_SHIFT;
}

/* Whether the entry is as another director told, which told_end is of: no packet came
 * here. */
static __always_inline int told_replica(const struct conn *c)
{
	return c->told & TOLD_REPLICA;
}

/* Notes what backups know from now on. */
static __always_inline void told_note(struct conn *c, __u16 end, __u32 state, int replica)
{
	c->told_end = end;
	c->told = state << TOLD_STATE_SHIFT | (replica ? TOLD_REPLICA : 0);
}

/* Notes what they knew of an entry that is entered again, unless a packet was first. */
static __always_inline void told_again(struct conn *c, __u16 end, __u8 told)
{
	if (c->told_end || c->told)
		return;
	c->told_end = end;
	c->told = told;
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
	return set->timeout[c->state & 31];
}

/* The unit, as a power of two [ns]: without branches, of which the verifier would follow
 * each combination. */
static __always_inline __u32 told_unit(__u64 timeout)
{
	__u32 unit = 0, half;

	timeout = (timeout < TOLD_LEAST ? TOLD_LEAST : timeout) >> 14;
#pragma unroll
	for (half = 32; half; half >>= 1) {
		__u64 rest = timeout >> half;
		__u32 by;

		asm volatile("" : "+r"(rest));
		by = (-rest >> 63) * half; /* half if there is a rest */
		timeout >>= by;
		unit += by;
	}
	return unit + 1;
}

/* A time [ns] as told_end has it, which is never 0. */
static __always_inline __u16 told_time(__u64 time, __u32 unit)
{
	__u16 short_time = (time >> unit) & ~TOLD_REPETITIONS;

	return short_time ? short_time : TOLD_REPETITIONS + 1;
}

/* The end of a replica [ns] as told_end has it, which is never 0. */
static __always_inline __u16 told_replica_end(__u64 expires)
{
	__u16 end = expires >> TICK_SHIFT;

	return end ? end : 1;
}

/* Whether an entry is a replica whose end no packet has moved. */
static __always_inline int told_untouched(const struct conn *c)
{
	__s16 moved = told_replica_end(c->expires) - c->told_end;

	return told_replica(c) && c->told_end && moved > -TOLD_SLACK && moved < TOLD_SLACK;
}

/* At least each 32 s: forgets what would be misread when the time has wrapped around. */
static __always_inline void told_lapse(struct conn *c, __u64 now, __u64 timeout)
{
	__u32 unit = told_unit(timeout);
	__s16 past = (__u16)(now >> unit) - c->told_end;

	if (timeout < TOLD_LEAST)
		timeout = TOLD_LEAST;
	if (told_replica(c) ? !told_untouched(c) : past >= (__s16)(timeout >> unit))
		told_unknown(c);
}

#endif
