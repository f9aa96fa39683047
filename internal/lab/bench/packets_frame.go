// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"imbang/internal/director/testrun"
)

// TCP's flags, as they are in its header.
const (
	flagSYN = 0x02
	flagACK = 0x10
)

// packetsFrame is a TCP packet without options that comes in by a device of the
// director. The addresses and ports are those of the first flow.
func packetsFrame(from, to netip.AddrPort, flags byte) []byte {
	const tcpHeader, notToBeFragmented = 20, 0x40
	src, dst := hardware(benchOutsideMAC), hardware(benchMAC)
	f := make([]byte, 0, testrun.PacketLoopBytes)
	f = append(append(f, dst[:]...), src[:]...)
	ends := append(from.Addr().AsSlice(), to.Addr().AsSlice()...)
	if to.Addr().Is4() {
		f = append(f, 8, 0)
		ip := []byte{0x45, 0, 0, 0, 0, 0, notToBeFragmented, 0, 64, unix.IPPROTO_TCP, 0, 0}
		binary.BigEndian.PutUint16(ip[2:], uint16(cap(f)-etherHeader))
		ip = append(ip, ends...)
		binary.BigEndian.PutUint16(ip[10:], checksum(ip))
		f = append(f, ip...)
	} else {
		length := cap(f) - etherHeader - 40
		f = append(f, 0x86, 0xdd, 0x60, 0, 0, 0, byte(length>>8), byte(length), unix.IPPROTO_TCP, 64)
		f = append(f, ends...)
	}
	tcp := make([]byte, cap(f)-len(f))
	binary.BigEndian.PutUint16(tcp, from.Port())
	binary.BigEndian.PutUint16(tcp[2:], to.Port())
	binary.BigEndian.PutUint32(tcp[4:], 1)
	tcp[12], tcp[13] = tcpHeader/4<<4, flags
	binary.BigEndian.PutUint16(tcp[14:], 1024)
	pseudo := append(ends, 0, unix.IPPROTO_TCP, byte(len(tcp)>>8), byte(len(tcp)))
	binary.BigEndian.PutUint16(tcp[16:], checksum(append(pseudo, tcp...)))
	return append(f, tcp...)
}

// firstAddress is the client's of a flow that a scene begins with: the clients' network
// with this last word. IPv4 has nothing else.
func (n benchNetwork) firstAddress(word uint32) netip.Addr {
	b := n.clients.Addr().AsSlice()
	binary.BigEndian.PutUint32(b[len(b)-4:], word)
	a, _ := netip.AddrFromSlice(b) // as long as the network's
	return a
}
