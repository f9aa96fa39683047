/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a packet makes of a connection's state, of any protocol, and what a state
 * means.
 */
#ifndef IMBANG_CONN_STATE_H
#define IMBANG_CONN_STATE_H

#include "by_id.h"
#include "clock.h"
#include "defence.h"
#include "maps.h"
#include "packet.h"
#include "sctp_state.h"
#include "tcp.h"

/* Whether packets change the state. */
static __always_inline int has_states(__u8 state)
{
	return state < TCP_STATES || state >= SCTP_NONE;
}

static __always_inline __u8 next_state(__u8 state, const struct packet *p, __u32 direction)
{
	if (state >= SCTP_NONE)
		return sctp_next_state(state, p->chunk, direction);
	return tcp_next_state(state, p->tcp_bits, direction);
}

/* By which rules a packet changes the state. */
static __always_inline __u32 rules(__u8 state, __u32 direction, const struct settings *set)
{
	if (state < TCP_STATES && defence_works(set->secure_tcp))
		return direction + SECURE;
	return direction;
}

static __always_inline int is_established(__u8 state)
{
	return state == TCP_ESTABLISHED || state == SCTP_ESTABLISHED;
}

static __always_inline int counts_active(__u8 state)
{
	return tcp_active(state) || state == SCTP_ESTABLISHED;
}

/* What a connection is before its first packet. */
static __always_inline __u8 state_before(__u8 protocol)
{
	if (protocol == IPPROTO_TCP)
		return TCP_NONE;
	return protocol == IPPROTO_SCTP ? SCTP_NONE : CONN_UDP;
}

/* For how much longer a server may have its connections [ns]: the setting
 * drain_timeout ends those of one that has weight 0 for so long. */
static __always_inline __u64 server_lease(const struct server *s, const struct settings *set)
{
	__u64 until, now;

	if (!set->drain_timeout || s->weight)
		return ~0ULL;
	until = s->quiescent + set->drain_timeout * NSEC_PER_SEC;
	now = now_coarse_ns();
	return until > now ? until - now : 0;
}

/* The time that a connection may live without a packet [ns]. */
static __always_inline __u64 conn_timeout(__u32 server, __u8 state, const struct settings *set)
{
	__u64 timeout = set->timeout[state & 31], lease;
	struct server *s;

	if (!set->drain_timeout)
		return timeout;
	s = server_far(server);
	lease = s ? server_lease(s, set) : timeout;
	return lease < timeout ? lease : timeout;
}

#endif
