// SPDX-License-Identifier: Apache-2.0

package vrrp

import (
	"encoding/binary"
	"net/netip"
)

// checksum is the Internet checksum (RFC 1071) of what was added up before, and of b.
func checksum(sum uint32, b []byte) uint16 {
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// pseudoSum adds up the pseudo header: both addresses, the protocol and the length. It has
// the same sum in the layouts of IPv4 and of IPv6 (RFC 8200, 8.1).
func pseudoSum(source, destination netip.Addr, length int) uint32 {
	sum := uint32(Protocol) + uint32(length)
	for _, a := range [2]netip.Addr{source, destination} {
		for b := a.AsSlice(); len(b) >= 2; b = b[2:] {
			sum += uint32(binary.BigEndian.Uint16(b))
		}
	}
	return sum
}
