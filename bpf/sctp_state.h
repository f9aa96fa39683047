/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How an SCTP association's state follows from the packets that pass
 * (sctp_states of ip_vs_proto_sctp.c): by the type of the first chunk.
 */
#ifndef IMBANG_SCTP_STATE_H
#define IMBANG_SCTP_STATE_H

#include "tcp.h"

enum sctp_event {
	SCTP_DATA, /* and whatever changes nothing else */
	SCTP_INIT_CHUNK,
	SCTP_INIT_ACK,
	SCTP_COOKIE_ECHO,
	SCTP_COOKIE_ACK,
	SCTP_SHUTDOWN,
	SCTP_SHUTDOWN_ACK,
	SCTP_SHUTDOWN_COMPLETE,
	SCTP_ERROR,
	SCTP_ABORT,
	SCTP_EVENTS,
};

/* The states in the order of enum conn_state, less SCTP_NONE. */
#define NO 0
#define I1 1
#define IN 2
#define CS 3
#define CR 4
#define CW 5
#define CO 6
#define CE 7
#define ES 8
#define SS 9
#define SR 10
#define SA 11
#define RJ 12
#define CL 13

#define SCTP_ROW 16 /* states in a row, padded */

/* sctp_next[direction][event][state] */
/* clang-format off */
static const __u8 sctp_next[3 * SCTP_EVENTS * SCTP_ROW] = {
	/* from the client:
	 *                  NO  I1  IN  CS  CR  CW  CO  CE  ES  SS  SR  SA  RJ  CL */
	/* data           */ ES, I1, IN, CS, CR, CW, CO, CE, ES, SS, SR, SA, RJ, CL, 0, 0,
	/* init           */ I1, IN, IN, CS, CR, CW, CO, CE, ES, SS, SR, SA, IN, IN, 0, 0,
	/* init ack       */ CW, CW, CW, CS, CR, CO, CO, CE, ES, SS, SR, SA, RJ, CL, 0, 0,
	/* cookie echo    */ CR, IN, IN, CR, CR, CW, CO, CE, ES, SS, SR, SA, RJ, CL, 0, 0,
	/* cookie ack     */ ES, I1, IN, CS, CR, CW, CO, ES, ES, SS, SR, SA, RJ, CL, 0, 0,
	/* shutdown       */ SR, I1, IN, CS, CR, CW, CO, CE, SR, SS, SR, SA, RJ, CL, 0, 0,
	/* shutdown ack   */ CL, IN, IN, CS, CR, CW, CO, CE, ES, CL, SR, CL, RJ, CL, 0, 0,
	/* shutdown compl */ CL, CL, CL, CS, CR, CW, CO, CE, ES, SS, SR, CL, RJ, CL, 0, 0,
	/* error          */ CL, I1, IN, CS, CR, CW, CO, CL, ES, SS, SR, SA, RJ, CL, 0, 0,
	/* abort          */ CL, CL, CL, CL, CL, RJ, CL, CL, CL, CL, CL, CL, CL, CL, 0, 0,
	/* from the server:
	 *                  NO  I1  IN  CS  CR  CW  CO  CE  ES  SS  SR  SA  RJ  CL */
	/* data           */ ES, I1, IN, CS, CR, CW, CO, CE, ES, SS, SR, SA, RJ, CL, 0, 0,
	/* init           */ CW, CW, CW, CW, CW, CW, CW, CW, ES, CW, CW, CW, CW, CW, 0, 0,
	/* init ack       */ CS, CS, CS, CS, CR, CW, CO, CE, ES, SS, SR, SA, RJ, CL, 0, 0,
	/* cookie echo    */ CE, CE, CE, CE, CE, CE, CE, CE, ES, SS, SR, SA, RJ, CL, 0, 0,
	/* cookie ack     */ ES, ES, ES, ES, ES, ES, ES, ES, ES, SS, SR, SA, RJ, CL, 0, 0,
	/* shutdown       */ SS, SS, SS, SS, SS, SS, SS, SS, SS, SS, SR, SA, RJ, CL, 0, 0,
	/* shutdown ack   */ SA, SA, SA, SA, SA, CW, CO, CE, ES, SA, SA, SA, RJ, CL, 0, 0,
	/* shutdown compl */ CL, I1, IN, CS, CR, CW, CO, CE, ES, SS, SR, SA, RJ, CL, 0, 0,
	/* error          */ CL, CL, CL, CL, CL, CW, CO, CE, ES, SS, SR, SA, RJ, CL, 0, 0,
	/* abort          */ CL, RJ, CL, CL, CL, CL, CL, CL, CL, CL, CL, CL, CL, CL, 0, 0,
	/* from the client, the only direction seen:
	 *                  NO  I1  IN  CS  CR  CW  CO  CE  ES  SS  SR  SA  RJ  CL */
	/* data           */ ES, I1, IN, CS, CR, ES, CO, CE, ES, SS, SR, SA, RJ, CL, 0, 0,
	/* init           */ I1, IN, IN, IN, IN, IN, CO, CE, ES, SS, SR, SA, IN, IN, 0, 0,
	/* init ack       */ CE, CE, CE, CE, CE, CE, CO, CE, ES, SS, SR, SA, RJ, CL, 0, 0,
	/* cookie echo    */ ES, ES, ES, ES, ES, ES, CO, CE, ES, SS, SR, SA, RJ, CL, 0, 0,
	/* cookie ack     */ ES, I1, IN, ES, ES, CW, ES, ES, ES, SS, SR, SA, RJ, CL, 0, 0,
	/* shutdown       */ SR, I1, IN, CS, CR, CW, CO, CE, SR, SS, SR, SA, RJ, CL, 0, 0,
	/* shutdown ack   */ CL, IN, IN, CS, CR, CW, CO, CE, CL, CL, SR, CL, RJ, CL, 0, 0,
	/* shutdown compl */ CL, CL, CL, CL, CL, CW, CO, CE, ES, SS, CL, CL, RJ, CL, 0, 0,
	/* error          */ CL, I1, IN, CS, CR, CW, CO, CE, ES, SS, SR, SA, RJ, CL, 0, 0,
	/* abort          */ CL, CL, CL, CL, CL, RJ, CL, CL, CL, CL, CL, CL, CL, CL, 0, 0,
};
/* clang-format on */

#undef NO
#undef I1
#undef IN
#undef CS
#undef CR
#undef CW
#undef CO
#undef CE
#undef ES
#undef SS
#undef SR
#undef SA
#undef RJ
#undef CL

static __always_inline __u32 sctp_event(__u8 chunk)
{
	switch (chunk) {
	case CHUNK_INIT:
		return SCTP_INIT_CHUNK;
	case CHUNK_INIT_ACK:
		return SCTP_INIT_ACK;
	case CHUNK_COOKIE_ECHO:
		return SCTP_COOKIE_ECHO;
	case CHUNK_COOKIE_ACK:
		return SCTP_COOKIE_ACK;
	case CHUNK_SHUTDOWN:
		return SCTP_SHUTDOWN;
	case CHUNK_SHUTDOWN_ACK:
		return SCTP_SHUTDOWN_ACK;
	case CHUNK_SHUTDOWN_COMPLETE:
		return SCTP_SHUTDOWN_COMPLETE;
	case CHUNK_ERROR:
		return SCTP_ERROR;
	case CHUNK_ABORT:
		return SCTP_ABORT;
	}
	return SCTP_DATA;
}

/* The state after a packet whose first chunk is of this type. */
static __always_inline __u8 sctp_next_state(__u8 state, __u8 chunk, __u32 direction)
{
	__u32 from = state - SCTP_NONE;
	__u32 at = (direction * SCTP_EVENTS + sctp_event(chunk)) * SCTP_ROW + from;

	if (from >= SCTP_ROW || at >= sizeof(sctp_next))
		return SCTP_CLOSED;
	return SCTP_NONE + sctp_next[at];
}

#endif
