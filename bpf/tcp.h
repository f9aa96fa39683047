/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How a TCP connection's state follows from the packets that pass
 * (tcp_states of ip_vs_proto_tcp.c). The balancer sees no sequence numbers:
 * this is a guess that errs on the side of keeping the connection.
 */
#ifndef IMBANG_TCP_H
#define IMBANG_TCP_H

#include "packet.h"
#include "types.h"

enum direction {
	FROM_CLIENT = 0,
	FROM_SERVER = 1,
	/* FROM_CLIENT of a connection none of whose replies was seen: direct
	 * routing and tunnels */
	CLIENT_ONLY = 2,
	/* added to them: TCP by the rules of secure_tcp */
	SECURE = 3,
};

enum tcp_event {
	EVENT_SYN = 0,
	EVENT_FIN = 1,
	EVENT_ACK = 2,
	EVENT_RST = 3,
	EVENT_NONE = 4,
};

#define NO TCP_NONE
#define ES TCP_ESTABLISHED
#define SS TCP_SYN_SENT
#define SR TCP_SYN_RECV
#define FW TCP_FIN_WAIT
#define TW TCP_TIME_WAIT
#define CL TCP_CLOSE
#define CW TCP_CLOSE_WAIT
#define LA TCP_LAST_ACK
#define LI TCP_LISTEN
#define SA TCP_SYNACK

#define TCP_ROW 16 /* states in a row, padded */

/* tcp_next[direction][event][state]. By secure_tcp (tcp_states_dos) a
 * connection is half open until the server speaks again behind its SYN. */
/* clang-format off */
static const __u8 tcp_next[2 * SECURE * 4 * TCP_ROW] = {
	/* from the client:
	 *            NO  ES  SS  SR  FW  TW  CL  CW  LA  LI  SA */
	/* SYN */     SR, ES, ES, SR, SR, SR, SR, SR, SR, SR, SR, 0, 0, 0, 0, 0,
	/* FIN */     CL, CW, SS, TW, TW, TW, CL, CW, LA, LI, TW, 0, 0, 0, 0, 0,
	/* ACK */     ES, ES, SS, ES, FW, TW, CL, CW, CL, LI, ES, 0, 0, 0, 0, 0,
	/* RST */     CL, CL, CL, SR, CL, CL, CL, CL, LA, LI, SR, 0, 0, 0, 0, 0,
	/* from the server */
	/* SYN */     SS, ES, SS, SR, SS, SS, SS, SS, SS, LI, SR, 0, 0, 0, 0, 0,
	/* FIN */     TW, FW, SS, TW, FW, TW, CL, TW, LA, LI, TW, 0, 0, 0, 0, 0,
	/* ACK */     ES, ES, SS, ES, FW, TW, CL, CW, LA, ES, ES, 0, 0, 0, 0, 0,
	/* RST */     CL, CL, SS, CL, CL, TW, CL, CL, CL, CL, CL, 0, 0, 0, 0, 0,
	/* from the client, the only direction seen */
	/* SYN */     SR, ES, ES, SR, SR, SR, SR, SR, SR, SR, SR, 0, 0, 0, 0, 0,
	/* FIN */     CL, FW, SS, TW, FW, TW, CL, CW, LA, LI, TW, 0, 0, 0, 0, 0,
	/* ACK */     ES, ES, SS, ES, FW, TW, CL, CW, CL, LI, ES, 0, 0, 0, 0, 0,
	/* RST */     CL, CL, CL, SR, CL, CL, CL, CL, LA, LI, CL, 0, 0, 0, 0, 0,
	/* SECURE, from the client:
	 *            NO  ES  SS  SR  FW  TW  CL  CW  LA  LI  SA */
	/* SYN */     SR, ES, ES, SR, SR, SR, SR, SR, SR, SR, SA, 0, 0, 0, 0, 0,
	/* FIN */     CL, CW, SS, TW, TW, TW, CL, CW, LA, LI, SA, 0, 0, 0, 0, 0,
	/* ACK */     ES, ES, SS, SR, FW, TW, CL, CW, CL, LI, SA, 0, 0, 0, 0, 0,
	/* RST */     CL, CL, CL, SR, CL, CL, CL, CL, LA, LI, CL, 0, 0, 0, 0, 0,
	/* SECURE, from the server */
	/* SYN */     SS, ES, SS, SA, SS, SS, SS, SS, SS, LI, SA, 0, 0, 0, 0, 0,
	/* FIN */     TW, FW, SS, TW, FW, TW, CL, TW, LA, LI, TW, 0, 0, 0, 0, 0,
	/* ACK */     ES, ES, SS, ES, FW, TW, CL, CW, LA, ES, ES, 0, 0, 0, 0, 0,
	/* RST */     CL, CL, SS, CL, CL, TW, CL, CL, CL, CL, CL, 0, 0, 0, 0, 0,
	/* SECURE, from the client, the only direction seen */
	/* SYN */     SA, ES, ES, SR, SA, SA, SA, SA, SA, SA, SA, 0, 0, 0, 0, 0,
	/* FIN */     CL, FW, SS, TW, FW, TW, CL, CW, LA, LI, TW, 0, 0, 0, 0, 0,
	/* ACK */     ES, ES, SS, ES, FW, TW, CL, CW, CL, LI, ES, 0, 0, 0, 0, 0,
	/* RST */     CL, CL, CL, SR, CL, CL, CL, CL, LA, LI, CL, 0, 0, 0, 0, 0,
};
/* clang-format on */

#undef NO
#undef ES
#undef SS
#undef SR
#undef FW
#undef TW
#undef CL
#undef CW
#undef LA
#undef LI
#undef SA

/* Counts as an active connection: open, or about to be (tcp_state_active). */
static __always_inline int tcp_active(__u8 state)
{
	return state == TCP_ESTABLISHED || state == TCP_SYN_SENT || state == TCP_SYN_RECV ||
	       state == TCP_SYNACK;
}

static __always_inline __u32 tcp_event(__u8 bits)
{
	if (bits & TCP_BIT_RST)
		return EVENT_RST;
	if (bits & TCP_BIT_SYN)
		return EVENT_SYN;
	if (bits & TCP_BIT_FIN)
		return EVENT_FIN;
	if (bits & TCP_BIT_ACK)
		return EVENT_ACK;
	return EVENT_NONE;
}

/* The state after a packet; one without any of the four bits closes. */
static __always_inline __u8 tcp_next_state(__u8 state, __u8 bits, __u32 direction)
{
	__u32 event = tcp_event(bits);
	__u32 at;

	if (event == EVENT_NONE || state >= TCP_STATES)
		return TCP_CLOSE;
	at = (direction * 4 + event) * TCP_ROW + state;
	/* The compiler knows that it fits; a verifier need not (Linux 6.1). */
	asm volatile("" : "+r"(at));
	if (at >= sizeof(tcp_next))
		return TCP_CLOSE;
	return tcp_next[at];
}

#endif
