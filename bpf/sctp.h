/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * SCTP's checksum (RFC 9260, appendix A): CRC32c over the whole packet, which
 * does not cover the addresses. A CRC is linear: when bits of the packet
 * change, the checksum changes by the CRC of the changed bits alone.
 */
#ifndef IMBANG_SCTP_H
#define IMBANG_SCTP_H

#include "packet.h"

#define CRC32C 0x82f63b78U /* the polynomial, lowest power in the highest bit */

/* x to the power of 8 * 2^i, modulo the polynomial. */
static const __u32 crc32c_power[16] = {
	0x00800000, 0x00008000, 0x82f63b78, 0x6ea2d55c, 0x18b8ea18, 0x510ac59a,
	0xb82be955, 0xb8fdb1e7, 0x88e56f72, 0x74c360a4, 0xe4172b16, 0x0d65762a,
	0x35d73a62, 0x28461564, 0xbf455269, 0xe2ea32dc,
};

/* a * b modulo the polynomial. */
__noinline __u32 crc32c_multiply(__u32 a, __u32 b)
{
	__u32 product = 0;

	for (int i = 0; i < 32; i++) {
		product ^= b & -(a >> 31);
		a <<= 1;
		b = b >> 1 ^ (CRC32C & -(b & 1));
	}
	return product;
}

/* What a changed word (in network order) does to the checksum if `behind`
 * bytes follow it. */
__noinline __u32 crc32c_change(__u32 word, __u32 behind)
{
	/* The word itself is 32 powers of x away from the remainder. */
	__u32 crc = crc32c_multiply(crc32c_power[2], word);

	for (int i = 0; i < 16; i++) {
		if (behind >> i & 1)
			crc = crc32c_multiply(crc32c_power[i], crc);
	}
	return crc;
}

/* What a changed port does to the checksum of an SCTP packet of a length. */
static __always_inline __u32 sctp_port_change(int of_destination, __be16 from, __be16 to,
					      __u32 length)
{
	__u32 word = (__u32)(from ^ to) << (of_destination ? 16 : 0);

	return crc32c_change(word, (length - sizeof(word)) & 0xffff);
}

/* Corrects the checksum for a changed port. One that the hardware is still to
 * fill in is zero, and has to stay so. */
static __always_inline int sctp_check_port(struct __sk_buff *skb, struct packet *p,
					   int of_destination, __be16 from, __be16 to)
{
	__u32 at = p->transport + offsetof(struct sctp_header, checksum);
	__u32 check;

	if (bpf_skb_load_bytes(skb, at, &check, sizeof(check)))
		return -1;
	if (!check)
		return 0;
	check ^=
		sctp_port_change(of_destination, from, to, p->length - (p->transport - ETH_HEADER));
	return bpf_skb_store_bytes(skb, at, &check, sizeof(check), BPF_F_RECOMPUTE_CSUM);
}

#endif
