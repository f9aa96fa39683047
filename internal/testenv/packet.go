// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"net/netip"
	"slices"
)

// Packet describes an Ethernet frame with an IP packet; its addresses say of
// which family. It is a value: each method returns a changed copy, so that a
// test says what comes out as a change of what goes in.
type Packet struct {
	protocol       uint8
	src, dst       netip.AddrPort
	srcMAC, dstMAC string
	ttl, tos       uint8
	id             uint32 // of a packet that may come in fragments
	payload        string
	noChecksum     bool // of UDP

	// IPv4
	options      []byte
	fragment     uint16 // more fragments: 0x2000; the offset below
	dontFragment bool

	extensions []extension // IPv6

	flags string // of TCP: letters of SAFRPU
	chunk uint8  // of SCTP: the type of the first chunk
	kind  icmpKind
}

// TCP is a TCP segment; flags are letters of SAFRPU.
func TCP(src, dst, flags string) Packet {
	return packet(protoTCP, src, dst).Flags(flags)
}

// UDP is a datagram.
func UDP(src, dst, payload string) Packet {
	return packet(protoUDP, src, dst).Payload(payload)
}

// SCTP is a packet with one chunk of a type (RFC 9260, 3.2), empty.
func SCTP(src, dst string, chunk uint8) Packet {
	return packet(protoSCTP, src, dst).Chunk(chunk)
}

// Types of SCTP's chunks.
const (
	SCTPData    = 0
	SCTPInit    = 1
	SCTPInitAck = 2
	SCTPAbort   = 6
)

// DirectorMAC is the hardware address that frames go to: one for other hosts
// is none of the director's business.
const DirectorMAC = "02:00:00:00:00:0b"

func packet(protocol uint8, src, dst string) Packet {
	const someone = "02:00:00:00:00:0a"
	return Packet{
		protocol: protocol, ttl: 64, id: 0x1234, srcMAC: someone, dstMAC: DirectorMAC,
		src: endpoint(src), dst: endpoint(dst),
	}
}

// endpoint reads an address with a port, or one without.
func endpoint(s string) netip.AddrPort {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap
	}
	return netip.AddrPortFrom(netip.MustParseAddr(s), 0)
}

// From changes the source.
func (p Packet) From(src string) Packet { p.src = endpoint(src); return p }

// To changes the destination.
func (p Packet) To(dst string) Packet { p.dst = endpoint(dst); return p }

// Turned exchanges source and destination.
func (p Packet) Turned() Packet { p.src, p.dst = p.dst, p.src; return p }

// Flags changes the TCP flags.
func (p Packet) Flags(flags string) Packet { p.flags = flags; return p }

// Chunk changes the type of the SCTP packet's chunk.
func (p Packet) Chunk(kind uint8) Packet { p.chunk = kind; return p }

// TTL changes the time to live, or hop limit.
func (p Packet) TTL(n uint8) Packet { p.ttl = n; return p }

// TOS changes the type of service, or traffic class: DSCP and ECN.
func (p Packet) TOS(b uint8) Packet { p.tos = b; return p }

// ID changes what fragments of a packet have in common; IPv4 has 16 bits.
func (p Packet) ID(n uint32) Packet { p.id = n; return p }

// MACs changes the hardware addresses.
func (p Packet) MACs(src, dst string) Packet { p.srcMAC, p.dstMAC = src, dst; return p }

// Payload changes the data.
func (p Packet) Payload(data string) Packet { p.payload = data; return p }

// NoChecksum leaves the UDP checksum out (RFC 768: zero).
func (p Packet) NoChecksum() Packet { p.noChecksum = true; return p }

// Options adds n words of IPv4 options: a record route option (RFC 791) that
// nobody fills in, of n * 4 bytes.
func (p Packet) Options(words int) Packet {
	p.options = make([]byte, 4*words)
	copy(p.options, []byte{7, uint8(4*words - 1), 4}) // the first free place; the last byte ends the list
	return p
}

// OptionBytes sets IPv4 options as they are, with an end of the list behind them where they
// are no whole words.
func (p Packet) OptionBytes(options ...byte) Packet {
	p.options = append(slices.Clone(options), make([]byte, -len(options)&3)...)
	return p
}

// DontFragment sets the DF flag of IPv4.
func (p Packet) DontFragment() Packet { p.dontFragment = true; return p }

// extension is a header between IPv6's and the transport's.
type extension struct {
	kind    uint8
	content []byte // behind next header and length
}

// IPv6 extension headers (RFC 8200, 4).
const (
	HopByHop    = 0
	Routing     = 43
	Destination = 60
)

// Extension adds an IPv6 extension header with nothing in it but padding.
func (p Packet) Extension(kind uint8) Packet {
	padN := []byte{1, 4, 0, 0, 0, 0} // also a routing header of type 1 that is over
	if kind == Routing {
		padN = make([]byte, 6)
	}
	return p.extended(extension{kind, padN})
}

// extended does not touch what other copies see.
func (p Packet) extended(e extension) Packet {
	p.extensions = append(slices.Clip(p.extensions), e)
	return p
}
