// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Where things stand in a SYN's frame.
const (
	synSource   = etherHeader + 12
	synIPSum    = etherHeader + 10
	synTCP      = etherHeader + 20
	synSequence = synTCP + 4
	synTCPSum   = synTCP + 16
	synSize     = synTCP + 20
)

// spoofed is the network that SYNs pretend to come from, 2^29 addresses, and a
// step that visits each of them once.
const (
	spoofedNetwork = 32 << 24
	spoofedMask    = 1<<29 - 1
	spoofedStep    = 0x9e3779b1
)

// synMaker makes SYNs, no two from the same address until all were.
type synMaker struct {
	n     uint32
	frame [synSize]byte // without what differs
	ip    uint32        // sums without what differs
	tcp   uint32
}

// newSynMaker makes SYNs to a service, of IPv4.
func newSynMaker(src, dst [6]byte, to netip.AddrPort, start uint32) *synMaker {
	m := &synMaker{n: start}
	f := m.frame[:]
	copy(f, dst[:])
	copy(f[6:], src[:])
	f[12] = 8
	ip, tcp := f[etherHeader:synTCP], f[synTCP:]
	copy(ip, []byte{0x45, 0, 0, synSize - etherHeader, 0, 0, 0x40, 0, 64, unix.IPPROTO_TCP})
	copy(ip[16:], to.Addr().AsSlice())
	binary.BigEndian.PutUint16(tcp[2:], to.Port())
	tcp[12], tcp[13] = 5<<4, 2 // SYN
	binary.BigEndian.PutUint16(tcp[14:], 64240)
	m.ip = words(ip)
	m.tcp = words(tcp) + words(ip[16:]) + unix.IPPROTO_TCP + uint32(len(tcp))
	return m
}

// words adds up an even number of bytes, two at a time.
func words(b []byte) (sum uint32) {
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	return sum
}

// next writes the next SYN.
func (m *synMaker) next(f []byte) {
	i := m.n
	m.n++
	address := spoofedNetwork + i*spoofedStep&spoofedMask
	port, sequence := 1024+i*40503>>5%64000, i*2246822519
	binary.BigEndian.PutUint32(f[synSource:], address)
	binary.BigEndian.PutUint16(f[synTCP:], uint16(port))
	binary.BigEndian.PutUint32(f[synSequence:], sequence)
	varied := address>>16 + address&0xffff
	binary.BigEndian.PutUint16(f[synIPSum:], folded(m.ip+varied))
	binary.BigEndian.PutUint16(f[synTCPSum:], folded(m.tcp+varied+port&0xffff+sequence>>16+sequence&0xffff))
}

func folded(sum uint32) uint16 {
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum>>16 + sum&0xffff)
}
