/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a packet makes of a connection's state, of any protocol, and what a state
 * means.
 */
#ifndef IMBANG_CONN_STATE_H
#define IMBANG_CONN_STATE_H

#include "defence.h"
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

#endif
