/* SPDX-License-Identifier: GPL-2.0-only */
/* Addresses of either family in one shape. */
#ifndef IMBANG_ADDRESS_H
#define IMBANG_ADDRESS_H

#include "types.h"

static __always_inline void address_from4(union address *a, __be32 v4)
{
	a->word[0] = 0;
	a->word[1] = 0;
	a->word[2] = bpf_htonl(0xffff);
	a->word[3] = v4;
}

/* A copy, of a family that is known when this is compiled. */
static __always_inline void address_copy(union address *to, const union address *from, __u8 family)
{
	if (family == AF_INET)
		address_from4(to, from->word[3]);
	else
		*to = *from;
}

static __always_inline int address_equal(const union address *a, const union address *b)
{
	return a->word[0] == b->word[0] && a->word[1] == b->word[1] && a->word[2] == b->word[2] &&
	       a->word[3] == b->word[3];
}

/* The IPv4 address of a mapped one. */
static __always_inline __be32 address_to4(const union address *a)
{
	return a->word[3];
}

static __always_inline __u8 address_family(const union address *a)
{
	if (!a->word[0] && !a->word[1] && a->word[2] == bpf_htonl(0xffff))
		return AF_INET;
	return AF_INET6;
}

/* Whether it may be one host's, elsewhere: what it is not, is a martian as a
 * source, which Linux throws away before IPVS sees it (RFC 1812, 5.3.7). */
static __always_inline int address_of_host(const union address *a)
{
	__u8 first = a->byte[12];

	if (address_family(a) == AF_INET)
		return first != 0 && first != 127 && first < 224;
	if (a->word[0] || a->word[1] || a->word[2])
		return a->byte[0] != 0xff;
	return bpf_ntohl(a->word[3]) > 1; /* :: and ::1 */
}

/* 127.0.0.0/8, ::1 */
static __always_inline int address_loopback(const union address *a)
{
	if (address_family(a) == AF_INET)
		return a->byte[12] == 127;
	return !(a->word[0] | a->word[1] | a->word[2]) && a->word[3] == bpf_htonl(1);
}

/* What Linux's schedulers hash: an IPv4 address, or an IPv6 address folded
 * by exclusive or; in host order. */
static __always_inline __u32 address_fold(const union address *a, __u8 family)
{
	if (family == AF_INET)
		return bpf_ntohl(a->word[3]);
	return bpf_ntohl(a->word[0] ^ a->word[1] ^ a->word[2] ^ a->word[3]);
}

/* The first 32 of `bits` leading ones, in network order. */
static __always_inline __be32 prefix_word(__s32 bits)
{
	if (bits <= 0)
		return 0;
	if (bits >= 32)
		return 0xffffffff;
	return bpf_htonl(0xffffffffU << (32 - bits));
}

/* hash_32 of include/linux/hash.h: the golden ratio, upper bits. */
static __always_inline __u32 hash_32(__u32 value, __u32 bits)
{
	return (value * 0x61C88647U) >> (32 - bits);
}

#endif
