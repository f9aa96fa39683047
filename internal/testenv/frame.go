// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"encoding/binary"
	"net"
	"slices"
	"strings"
)

const (
	etherHeader = 14
	etherIPv4   = 0x0800
	etherIPv6   = 0x86dd

	protoICMP     = 1
	protoTCP      = 6
	protoUDP      = 17
	protoFragment = 44
	protoAH       = 51
	protoICMPv6   = 58
	protoSCTP     = 132
)

// Frame is the packet as bytes, with correct lengths and checksums. A short
// one is not padded.
func (p Packet) Frame() []byte { return p.framed(p.segment()) }

// framed puts the headers of Ethernet and IP before a transport's bytes.
func (p Packet) framed(segment []byte) []byte {
	kind, header := uint16(etherIPv4), p.header4
	if p.six() {
		kind, header = etherIPv6, p.header6
	}
	ether := binary.BigEndian.AppendUint16(slices.Concat(mac(p.dstMAC), mac(p.srcMAC)), kind)
	return slices.Concat(ether, header(len(segment)), segment)
}

func (p Packet) six() bool { return p.src.Addr().Is6() }

// addresses are source and destination, as in the header.
func (p Packet) addresses() []byte {
	return slices.Concat(p.src.Addr().AsSlice(), p.dst.Addr().AsSlice())
}

func (p Packet) header4(behind int) []byte {
	field := p.fragment
	if p.dontFragment {
		field |= 0x4000
	}
	size := 20 + len(p.options)
	h := []byte{0x40 | uint8(size/4), p.tos}
	h = binary.BigEndian.AppendUint16(h, uint16(size+behind))
	h = binary.BigEndian.AppendUint16(h, uint16(p.id))
	h = binary.BigEndian.AppendUint16(h, field)
	h = append(h, p.ttl, p.protocol, 0, 0)
	h = slices.Concat(h, p.addresses(), p.options)
	binary.BigEndian.PutUint16(h[10:], Sum(h))
	return h
}

func (p Packet) header6(behind int) []byte {
	next := p.protocol
	var extensions []byte
	for _, e := range slices.Backward(p.extensions) {
		extensions = slices.Concat([]byte{next, uint8(len(e.content)+2)/8 - 1}, e.content, extensions)
		if e.kind == protoFragment {
			extensions[1] = 0 // reserved
		}
		next = e.kind
	}
	const flow = 0x54321
	h := binary.BigEndian.AppendUint32(nil, 6<<28|uint32(p.tos)<<20|flow)
	h = binary.BigEndian.AppendUint16(h, uint16(len(extensions)+behind))
	h = append(h, next, p.ttl)
	return slices.Concat(h, p.addresses(), extensions)
}

// segment is what is behind the IP headers.
func (p Packet) segment() []byte {
	switch p.protocol {
	case protoTCP:
		return p.summed(p.tcp(), 16)
	case protoUDP:
		return p.udp()
	case protoSCTP:
		return p.sctp()
	}
	return p.icmp()
}

// summed fills in the checksum of TCP, UDP or ICMPv6.
func (p Packet) summed(segment []byte, at int) []byte {
	sum := Sum(pseudo(p.addresses(), p.protocol, len(segment)), segment)
	binary.BigEndian.PutUint16(segment[at:], sum)
	return segment
}

func (p Packet) ports() []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, p.src.Port()), p.dst.Port())
}

func (p Packet) tcp() []byte {
	var flags uint8
	for i, letter := range "FSRPAU" {
		if strings.ContainsRune(p.flags, letter) {
			flags |= 1 << i
		}
	}
	var options []byte
	if flags&2 != 0 {
		options = []byte{2, 4, 5, 0xb4} // the longest segment: 1460
	}
	const window = 4
	h := append(p.ports(), 1, 2, 3, 4, 5, 6, 7, 8, uint8(20+len(options))<<2, flags, window, 0, 0, 0, 0, 0)
	return slices.Concat(h, options, []byte(p.payload))
}

func (p Packet) udp() []byte {
	h := binary.BigEndian.AppendUint16(p.ports(), uint16(8+len(p.payload)))
	segment := append(append(h, 0, 0), p.payload...)
	if p.noChecksum {
		return segment
	}
	segment = p.summed(segment, 6)
	if segment[6] == 0 && segment[7] == 0 {
		segment[6], segment[7] = 0xff, 0xff // zero would mean that there is none
	}
	return segment
}

func (p Packet) sctp() []byte {
	tag := []byte{0xde, 0xad, 0xbe, 0xef}
	h := slices.Concat(p.ports(), tag, make([]byte, 4), []byte{p.chunk, 0})
	segment := append(binary.BigEndian.AppendUint16(h, uint16(4+len(p.payload))), p.payload...)
	binary.LittleEndian.PutUint32(segment[sctpCheckAt:], sctpSum(segment, len(segment)))
	return segment
}

func mac(s string) net.HardwareAddr {
	hw, err := net.ParseMAC(s)
	if err != nil {
		panic(err)
	}
	return hw
}
