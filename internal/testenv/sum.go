// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"encoding/binary"
	"hash/crc32"
)

// Sum is the Internet checksum of RFC 1071 over all parts, each of which but
// the last has an even length; 0 over data that hold their right checksum.
func Sum(parts ...[]byte) uint16 {
	var sum uint32
	for _, b := range parts {
		for ; len(b) > 1; b = b[2:] {
			sum += uint32(binary.BigEndian.Uint16(b))
		}
		if len(b) == 1 {
			sum += uint32(b[0]) << 8
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sctpCheckAt is where an SCTP header has its checksum (RFC 9260, 3.1).
const sctpCheckAt = 8

// sctpSum is the CRC32c of an SCTP packet of `length` bytes, whatever its
// checksum field says; those that are missing at its end count as zero.
func sctpSum(packet []byte, length int) uint32 {
	crc := crc32.Update(0, castagnoli, packet[:sctpCheckAt])
	crc = crc32.Update(crc, castagnoli, make([]byte, 4))
	crc = crc32.Update(crc, castagnoli, packet[sctpCheckAt+4:])
	return crc32.Update(crc, castagnoli, make([]byte, length-len(packet)))
}

// pseudo is what TCP, UDP and ICMPv6 sum up besides themselves (RFC 9293,
// 3.1; RFC 8200, 8.1): the addresses lie one behind the other.
func pseudo(addresses []byte, protocol uint8, length int) []byte {
	p := append([]byte{}, addresses...)
	p = binary.BigEndian.AppendUint32(p, uint32(length))
	return append(p, 0, 0, 0, protocol)
}
