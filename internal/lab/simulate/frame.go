// SPDX-License-Identifier: Apache-2.0

package simulate

import "encoding/binary"

// frame is a TCP segment without data over IPv4 and Ethernet (RFC 9293, RFC
// 791). Its checksums are left out: the data plane repairs them by difference
// and nobody reads them.
type frame [54]byte

// Flags of a TCP header.
const (
	fin = 0x01
	syn = 0x02
	rst = 0x04
	ack = 0x10
)

// newFrame is a frame to the director, whatever device it comes in by.
func newFrame() *frame {
	f := &frame{
		12: 0x08,                                  // IPv4
		14: 0x45, 17: 40, 20: 0x40, 22: 64, 23: 6, // 40 bytes, do not fragment, 64 hops, TCP
		46: 0x50, 48: 0xff, 49: 0xff, // 20 bytes of header; window
	}
	copy(f[0:], directorMAC)
	copy(f[6:], peerMAC)
	return f
}

// set fills in who sends what to whom.
func (f *frame) set(from, to end, flags byte) {
	binary.BigEndian.PutUint32(f[26:], from.addr)
	binary.BigEndian.PutUint32(f[30:], to.addr)
	binary.BigEndian.PutUint16(f[34:], from.port)
	binary.BigEndian.PutUint16(f[36:], to.port)
	f[47] = flags
}

// end is an address with a port.
type end struct {
	addr uint32
	port uint16
}
