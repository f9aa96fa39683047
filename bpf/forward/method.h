/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a forwarding method (enum forward) does: the one place that says it.
 * Other code calls one of these functions, by the property it depends on, and
 * names no method. Only deliver.h does, to dispatch.
 */
#ifndef IMBANG_FORWARD_METHOD_H
#define IMBANG_FORWARD_METHOD_H

#include "../types.h"

/* The server's replies come through the director, which translates them. Else
 * the server answers the client itself. */
static __always_inline int replies_return(__u32 forward)
{
	return forward == FORWARD_MASQ;
}

/* The packet's destination address becomes the server's. */
static __always_inline int rewrites_address(__u32 forward)
{
	return forward == FORWARD_MASQ;
}

/* Its port, too. Else the server gets the one that the client asked for. */
static __always_inline int rewrites_port(__u32 forward)
{
	return forward == FORWARD_MASQ;
}

/* The packet travels in another one, and errors about that come back. */
static __always_inline int encapsulates(__u32 forward)
{
	return forward == FORWARD_TUNNEL;
}

/* The packet goes no further than to the director's own stack. */
static __always_inline int stays_here(__u32 forward)
{
	return forward == FORWARD_LOCAL;
}

/* The source address can be rewritten, too, for clients beside their server
 * (hairpin.h). */
static __always_inline int hairpin_capable(__u32 forward)
{
	return forward == FORWARD_MASQ;
}

/* The fast path and XDP carry it out: to_server_fast and xdp_send. */
static __always_inline int fast_capable(__u32 forward)
{
	return forward == FORWARD_MASQ || forward == FORWARD_ROUTE || forward == FORWARD_TUNNEL;
}

#endif
