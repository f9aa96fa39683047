// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strconv"

	"imbang/internal/testenv"
)

// passed is a packet of a script and what became of it.
type passed struct {
	sent
	flags uint32 // BPF_PROG_TEST_RUN's
	got   result
}

// script makes packets out of a fuzzer's bytes, one after the other: the
// later ones answer the earlier.
type script struct {
	*source
	number int // of the script: its clients are its own
	before []passed
	pieces [][]byte // of packets that come in fragments
	here   bool     // what forwarded gave last went to the director itself
}

// next is the next packet.
func (s *script) next() (in sent) {
	kind := s.n(16)
	switch {
	case kind >= 5 && kind <= 7:
		in = s.answer()
	case kind >= 8 && kind <= 10:
		in = s.error()
	case kind == 11:
		in = s.fragmented()
	case kind == 12 && len(s.before) > 0:
		in = among(s.source, s.before...).sent
	case kind == 13:
		in = s.raw()
	case kind >= 14 && len(s.pieces) > 0:
		in = s.piece()
	}
	if in.frame == nil {
		in = byClient(s.first())
	}
	in.frame = runnable(s.mutated(in.frame))
	if s.once(16) {
		in.fromServer, in.fromHere = !in.fromServer, s.once(4)
	}
	in.context = s.context()
	return in
}

// context is what comes with a packet.
func (s *script) context() (c skBuff) {
	if s.once(4) {
		c.Mark = among(s.source, uint32(markMasq), markDirect, 9)
	}
	if s.once(16) {
		c.GSOSize, c.GSOSegs = among(s.source, uint32(1), 500, 1448, 1460, 1461, 0xffff), uint32(s.n(4))
	}
	return c
}

// client is who sends: mostly one of the script's own, behind the router.
func (s *script) client(f family) string {
	kind := s.n(20)
	switch {
	case kind == 17: // in the servers' own network, some of them unknown
		return f.server(20 + s.n(40))
	case kind == 18:
		return among(s.source, f.vip(vipMasq), f.server(0), f.client, f.inner, f.nowhere)
	case kind == 19 && f.number == ipv4.number:
		return among(s.source, "0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "10.9.0.1", "172.16.0.1")
	case kind == 19:
		return among(s.source, "::", "::1", "ff02::1", "::ffff:10.10.0.2", "fe80::1", "fd00:9::1", "fd00:172::1")
	}
	n := uint32(s.number<<1 | kind&1)
	if f.number == ipv4.number {
		return netip.AddrFrom4([4]byte{10, 128 | byte(n>>16)&0x7f, byte(n >> 8), byte(n)}).String()
	}
	return "fd00:10:" + strconv.FormatUint(uint64(n>>16), 16) + ":" + strconv.FormatUint(uint64(n&0xffff), 16) + "::2"
}

// virtual are the last bytes of addresses that packets go to.
var virtual = []int{
	vipMasq, vipMasq, vipMasq, vipSamePort, vipSamePort, vipDirect, vipEmpty, vipAll, vipAll, vipOnePacket, vipFar,
	vipMarked, vipMarked, vipLocal, vipLocalDirect, vipLoopback, vipOwn, vipFTP, 99,
}

func (s *script) virtual(f family) string {
	if s.once(3) {
		return f.vip(vipTunnel + s.n(2*len(tunnels)))
	}
	return f.vip(among(s.source, virtual...))
}

// payload is of a length that tends to be at some edge.
func (s *script) payload() string {
	n := among(s.source, 0, 1, 2, 7, 8, 31, 100, 101, 500+s.n(80), 1232+s.n(10), 1380+s.n(100), 1400+s.n(1400))
	switch s.n(4) {
	case 0:
		return string(make([]byte, n))
	case 1:
		return string(bytes.Repeat([]byte{0xff}, n))
	}
	return string(s.bytes(n))
}

// first is a packet of a client, perhaps the first of a connection.
func (s *script) first() testenv.Packet {
	f := among(s.source, families...)
	src := at(s.client(f), among(s.source, 1000, 1000, 1001, 1002, 20, 0, 80, s.n(1<<16)))
	dst := at(s.virtual(f), among(s.source, 80, 80, 80, 80, 80, 80, 80, 8080, 21, 20, 0, s.n(1<<16)))
	var p testenv.Packet
	switch s.n(9) {
	case 0, 1, 2:
		p = testenv.TCP(src, dst, s.tcpFlags("S"))
	case 3, 4, 5:
		p = testenv.UDP(src, dst, "")
		if s.once(4) {
			p = p.NoChecksum()
		}
	case 6, 7:
		p = testenv.SCTP(src, dst, among(s.source, 1, 1, 1, 1, 0, uint8(s.n(16)), s.byte()))
	case 8:
		p = testenv.ICMP(src, dst, among(s.source, 8, 128, s.byte()), uint8(s.n(16)))
	}
	return s.dressed(f, p.Payload(s.payload()))
}

// tcpFlags are often those.
func (s *script) tcpFlags(usual string) string {
	return among(s.source, usual, usual, usual, "A", "SA", "PA", "FA", "R", "RA", "", "SF", "SR", "SAFRPU")
}

// dressed is a packet with more of what it may have.
func (s *script) dressed(f family, p testenv.Packet) testenv.Packet {
	p = p.ID(uint32(s.n(1 << 24)))
	if s.once(3) {
		p = p.TOS(s.byte())
	}
	if s.once(4) {
		p = p.TTL(among(s.source, 0, 1, 2, 255, s.byte()))
	}
	if s.once(2) {
		p = p.DontFragment()
	}
	if s.once(8) {
		p = p.Fragment(among(s.source, uint16(0), 0x2000, 1, 0x2001, 0x1fff, 0x3fff))
	}
	if !s.once(3) {
		return p
	}
	if f.number == ipv4.number {
		return p.Options(s.n(11))
	}
	for range s.n(10) {
		p = p.Extension(among(s.source, uint8(testenv.HopByHop), testenv.Destination, testenv.Destination, testenv.Routing))
	}
	return p
}

// fragmented is a piece of a packet, mostly the first; the others may follow.
func (s *script) fragmented() sent {
	f := among(s.source, families...)
	src, dst := at(s.client(f), 1000), at(s.virtual(f), 80)
	p := among(s.source, testenv.UDP(src, dst, ""), testenv.TCP(src, dst, "S"), testenv.SCTP(src, dst, testenv.SCTPInit))
	p = s.dressed(f, p.Payload(string(s.bytes(40+s.n(3000)))))
	s.pieces = p.Fragments(8 * (3 + s.n(200)))
	return s.piece()
}

// piece is mostly the next one.
func (s *script) piece() sent {
	i := 0
	if s.once(8) {
		i = s.n(len(s.pieces))
	}
	frame := bytes.Clone(s.pieces[i])
	if !s.once(8) {
		s.pieces = append(s.pieces[:i:i], s.pieces[i+1:]...)
	}
	return sent{frame: frame}
}

// forwarded is one of the packets that were forwarded, or translated for the
// director itself; nil if there is none.
func (s *script) forwarded() []byte {
	if len(s.before) == 0 {
		return nil
	}
	for range 4 {
		p := among(s.source, s.before...)
		s.here = p.got.verdict == pass && !p.fromHere && !bytes.Equal(p.frame, p.got.frame)
		if p.got.verdict == redirect || s.here {
			return p.got.frame
		}
	}
	return nil
}

// answer is a reply to a packet that was forwarded, from its destination.
func (s *script) answer() sent {
	frame := turned(s.forwarded())
	if frame == nil {
		return sent{}
	}
	if at, protocol := transportOf(frame); protocol == 6 && at+14 <= len(frame) {
		frame[at+13] = among(s.source, 0x12, 0x12, 0x10, 0x18, 0x11, 0x04, 0x14, s.byte())
	} else if protocol == 132 && at+13 <= len(frame) {
		frame[at+12] = among(s.source, 2, 0, 3, uint8(s.n(16)))
	}
	// What the director has as a server, it answers itself.
	return sent{frame: testenv.Summed(frame), fromServer: true, fromHere: s.here}
}

// turned is a frame with its ends exchanged, and a TTL of 64.
func turned(of []byte) []byte {
	if len(of) < 14+20 {
		return nil
	}
	frame := bytes.Clone(of)
	copy(frame, testenv.UDP(client1, vip, "").Frame()[:12])
	addresses, size, ttl := 14+12, 4, 14+8
	if frame[12] == 0x86 {
		addresses, size, ttl = 14+8, 16, 14+7
	}
	if addresses+2*size > len(frame) {
		return nil
	}
	frame[ttl] = 64
	swap(frame[addresses:], size)
	if at, protocol := transportOf(frame); at+4 <= len(frame) && (protocol == 6 || protocol == 17 || protocol == 132) {
		swap(frame[at:], 2)
	}
	return frame
}

// swap exchanges two neighbours.
func swap(b []byte, size int) {
	first := bytes.Clone(b[:size])
	copy(b, b[size:2*size])
	copy(b[size:], first)
}

// transportOf is where the transport header of a simple packet is.
func transportOf(frame []byte) (at int, protocol byte) {
	if frame[12] == 0x86 {
		return 14 + 40, frame[14+6]
	}
	return 14 + int(frame[14]&15)*4, frame[14+9]
}

// error is an ICMP message about a packet that was forwarded, to the source
// of that packet.
func (s *script) error() sent {
	about := s.forwarded()
	if s.once(8) {
		about = turned(about)
	}
	if about == nil {
		return sent{}
	}
	f, src := ipv4, 14+12
	if about[12] == 0x86 {
		f, src = ipv6, 14+8
	}
	to, _ := netip.AddrFromSlice(about[src : src+len(netip.MustParseAddr(f.client).AsSlice())])
	usual, unusual := f.messages()
	m := among(s.source, usual...)
	if s.once(8) {
		m = among(s.source, unusual...)
	}
	if s.once(3) {
		m.rest = uint32(among(s.source, 0, 67, 68, 100, 1280, 1480, 1<<16|1400, s.n(1<<16)))
	}
	if s.once(4) { // what is quoted may be anything
		about = s.mutated(about)
	}
	if len(about) < 14 {
		return sent{}
	}
	from := among(s.source, f.inner, f.router, f.server(s.n(8)), f.client, to.String())
	p := m.between(from, to.String()).Quoting(about, among(s.source, 28, 48, 29, 68, 1000, 1400, s.n(1500)))
	return sent{frame: s.dressed(f, p).Frame(), fromServer: !s.once(3)}
}

// raw is a frame of the fuzzer's own bytes: it begins with its length.
func (s *script) raw() sent {
	frame := s.bytes(15 + s.n(1500))
	if s.once(2) {
		copy(frame, testenv.UDP(client1, vip, "").Frame()[:12])
		binary.BigEndian.PutUint16(frame[12:], among(s.source, uint16(0x0800), 0x86dd))
	}
	return sent{frame: frame, fromServer: s.once(2)}
}
