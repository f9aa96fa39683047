// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"encoding/binary"
)

// Summed is a frame with right checksums in its own headers, as far as it has
// any; a UDP checksum of zero stays (RFC 768), and so does what it quotes.
func Summed(frame []byte) []byte {
	frame = bytes.Clone(frame)
	v, err := dissect(frame)
	if err != nil {
		return frame
	}
	for _, c := range v.own("") {
		field := frame[c.at : c.at+c.size]
		if c.size == 4 {
			binary.LittleEndian.PutUint32(field, binary.LittleEndian.Uint32(field)^c.off)
			continue
		}
		sum := uint32(binary.BigEndian.Uint16(field)) + c.off
		binary.BigEndian.PutUint16(field, uint16(sum>>16+sum))
	}
	return frame
}

// Unpadded is a frame without what is behind its packet.
func Unpadded(frame []byte) []byte {
	if v, err := dissect(frame); err == nil {
		return frame[:v.end]
	}
	return frame
}

// NoErrorAbout reports whether nobody is told about a frame's packet (RFC 1122,
// 3.2.2): it is ICMP itself, or no fragment that says whose it is.
func NoErrorAbout(frame []byte) bool {
	v, err := dissect(frame)
	return err == nil && (v.isICMP() || v.later)
}

// Pending leaves a TCP or UDP checksum to the device that sends the packet,
// as far as bytes can say it: the sum of the pseudo header stands there.
func Pending(frame []byte) []byte {
	frame = bytes.Clone(frame)
	if at, sum, ok := pendingAt(frame); ok {
		binary.BigEndian.PutUint16(frame[at:], sum)
	}
	return frame
}

// IsPending reports whether a checksum may be such.
func IsPending(frame []byte) bool {
	at, sum, ok := pendingAt(frame)
	return ok && binary.BigEndian.Uint16(frame[at:]) == sum
}

// LikePending changes the last two bytes of a TCP or UDP payload so that the right checksum, which
// it writes, is the one that Pending would write. Of random packets, one in 65536 is such.
func LikePending(frame []byte) []byte {
	frame = Pending(frame)
	v, err := dissect(frame)
	if err != nil {
		return frame
	}
	segment := v.segment()
	last := segment[(len(segment)-2)&^1:][:2]
	clear(last)
	binary.BigEndian.PutUint16(last, Sum(pseudo(v.addresses(), v.protocol, len(segment)), segment))
	return frame
}

func pendingAt(frame []byte) (at int, sum uint16, ok bool) {
	v, err := dissect(frame)
	if err != nil || v.later || (v.protocol != protoTCP && v.protocol != protoUDP) {
		return 0, 0, false
	}
	at = v.transport + checkAt[v.protocol].at
	if at+2 > v.end {
		return 0, 0, false
	}
	return at, ^Sum(pseudo(v.addresses(), v.protocol, v.end-v.transport)), true
}
