// SPDX-License-Identifier: Apache-2.0

package testenv

import "encoding/binary"

// icmpKind is the first words of an ICMP message.
type icmpKind struct {
	kind, code uint8
	rest       uint32 // the MTU, an echo's id and number, ...
}

// ICMP is a message between two addresses, of ICMPv6 if they are IPv6's.
func ICMP(src, dst string, kind, code uint8) Packet {
	p := packet(protoICMP, src, dst)
	if p.six() {
		p.protocol = protoICMPv6
	}
	p.kind = icmpKind{kind: kind, code: code}
	return p
}

// Ping is an echo request.
func Ping(src, dst string) Packet {
	p := ICMP(src, dst, 8, 0).Rest(0x00010001).Payload("ping")
	if p.six() {
		p.kind.kind = 128
	}
	return p
}

// Rest changes the second word of an ICMP message: in "too big" the MTU.
func (p Packet) Rest(n uint32) Packet { p.kind.rest = n; return p }

// Quoting lets an ICMP error be about a frame's packet, of which it quotes n
// bytes, or all if there are fewer.
func (p Packet) Quoting(frame []byte, n int) Packet {
	quote := frame[etherHeader:]
	return p.Payload(string(quote[:min(n, len(quote))]))
}

func (p Packet) icmp() []byte {
	h := binary.BigEndian.AppendUint32([]byte{p.kind.kind, p.kind.code, 0, 0}, p.kind.rest)
	message := append(h, p.payload...)
	if p.protocol == protoICMPv6 {
		return p.summed(message, 2)
	}
	binary.BigEndian.PutUint16(message[2:], Sum(message))
	return message
}
