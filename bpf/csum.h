/* SPDX-License-Identifier: GPL-2.0-only */
/* The Internet checksum (RFC 1071) and its incremental update (RFC 1624). */
#ifndef IMBANG_CSUM_H
#define IMBANG_CSUM_H

#include "kernel.h"

static __always_inline __u16 csum_fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* A sum of many words of 16 or 32 bits, in 32 bits. */
static __always_inline __u32 csum_narrow(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	return (sum & 0xffffffff) + (sum >> 32);
}

/* RFC 1624, equation 3: HC' = ~(~HC + ~m + m'). */
static __always_inline void csum_replace2(__u16 *check, __u16 from, __u16 to)
{
	*check = csum_fold((__u16) ~*check + (__u16)~from + to);
}

static __always_inline void csum_replace4(__u16 *check, __be32 from, __be32 to)
{
	csum_replace2(check, from, to);
	csum_replace2(check, from >> 16, to >> 16);
}

#endif
