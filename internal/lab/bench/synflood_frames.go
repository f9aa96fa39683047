// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"

	"golang.org/x/sys/unix"
)

// floodNetwork is what IPv4 frames pretend to come from, 2^29 addresses, and a step that visits
// each of them once.
const (
	floodNetwork = 32 << 24
	floodMask    = 1<<29 - 1
	floodStep    = 0x9e3779b1
)

const (
	ipv4Header = 20
	ipv6Header = 40
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// floodMaker makes frames to a service, no two of them from the same address until all were, or
// two of each if the second one acknowledges what the first one asked for.
type floodMaker struct {
	kind      FloodKind
	n         uint32
	frame     []byte // without what differs
	source    int    // where in a frame the last 32 bits of its source are
	transport int    // where its transport header begins
	ip        uint32 // sums without what differs
	sum       uint32
}

// newFloodMaker makes frames that begin with the n-th address.
func newFloodMaker(kind FloodKind, src, dst [6]byte, to netip.AddrPort, n uint32) *floodMaker {
	payload, protocol := kind.transport(to.Port())
	m := &floodMaker{kind: kind, n: n, frame: append(dst[:], src[:]...)}
	length := uint16(len(payload))
	if to.Addr().Is4() {
		header := make([]byte, ipv4Header)
		copy(header, []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol})
		binary.BigEndian.PutUint16(header[2:], ipv4Header+length)
		copy(header[16:], to.Addr().AsSlice())
		m.frame = append(append(append(m.frame, 8, 0), header...), payload...)
		m.source, m.transport = etherHeader+12, etherHeader+ipv4Header
		m.ip, m.sum = words(header), words(header[16:])
	} else {
		header := make([]byte, ipv6Header)
		header[0], header[6], header[7] = 0x60, protocol, 64
		binary.BigEndian.PutUint16(header[4:], length)
		copy(header[8:], kind.abyss().all.Addr().AsSlice())
		copy(header[24:], to.Addr().AsSlice())
		m.frame = append(append(append(m.frame, 0x86, 0xdd), header...), payload...)
		m.source, m.transport = etherHeader+20, etherHeader+ipv6Header
		m.sum = words(header[8:])
	}
	m.sum += words(payload) + uint32(protocol) + uint32(length)
	return m
}

// transport is the header with what follows it, without a checksum.
func (k FloodKind) transport(port uint16) (payload []byte, protocol byte) {
	switch k {
	case FloodUDP:
		payload, protocol = make([]byte, 8+10), unix.IPPROTO_UDP
		binary.BigEndian.PutUint16(payload[4:], uint16(len(payload)))
	case FloodSCTP:
		payload, protocol = make([]byte, 12+20), unix.IPPROTO_SCTP
		copy(payload[12:], []byte{1, 0, 0, 20, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1}) // INIT (RFC 9260, 3.3.2)
	default:
		payload, protocol = make([]byte, 20), unix.IPPROTO_TCP
		payload[12], payload[13] = 5<<4, 2 // SYN
		binary.BigEndian.PutUint16(payload[14:], 64240)
	}
	binary.BigEndian.PutUint16(payload[2:], port)
	return payload, protocol
}

// words adds up an even number of bytes, two at a time.
func words(b []byte) (sum uint32) {
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	return sum
}

// next writes the next frame.
func (m *floodMaker) next(f []byte) {
	i, acknowledges := m.n, false
	m.n++
	if m.kind == FloodHandshake {
		i, acknowledges = i>>1, i&1 != 0
	}
	address := i * floodStep
	if m.ip != 0 {
		address = floodNetwork + address&floodMask
		binary.BigEndian.PutUint16(f[etherHeader+10:], folded(m.ip+address>>16+address&0xffff))
	}
	binary.BigEndian.PutUint32(f[m.source:], address)
	port, t := 1024+i*40503>>5%64000, f[m.transport:]
	binary.BigEndian.PutUint16(t, uint16(port))
	sum := m.sum + address>>16 + address&0xffff + port&0xffff
	switch m.kind {
	case FloodUDP:
		check := folded(sum)
		if check == 0 { // none
			check = 0xffff
		}
		binary.BigEndian.PutUint16(t[6:], check)
	case FloodSCTP:
		binary.LittleEndian.PutUint32(t[8:], 0)
		binary.LittleEndian.PutUint32(t[8:], crc32.Checksum(t, castagnoli))
	default:
		sequence, acknowledgement, bits := i*2246822519, uint32(0), byte(2) // SYN
		if acknowledges {
			sequence, acknowledgement, bits = sequence+1, i*3266489917, 16 // ACK
		}
		binary.BigEndian.PutUint32(t[4:], sequence)
		binary.BigEndian.PutUint32(t[8:], acknowledgement)
		t[13] = bits
		sum += sequence>>16 + sequence&0xffff + acknowledgement>>16 + acknowledgement&0xffff + uint32(bits) - 2
		binary.BigEndian.PutUint16(t[16:], folded(sum))
	}
}

func folded(sum uint32) uint16 {
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum>>16 + sum&0xffff)
}
