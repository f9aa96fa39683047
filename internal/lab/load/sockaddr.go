// SPDX-License-Identifier: Apache-2.0

package load

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// sockaddr is a struct sockaddr_in or sockaddr_in6 built once and handed to
// the kernel as it is.
type sockaddr struct {
	raw [unix.SizeofSockaddrInet6]byte
	len uintptr
}

// newSockaddr encodes an address: the family in host order, the port and the
// address in network order. An IPv4-mapped address becomes an IPv4 one.
func newSockaddr(a netip.AddrPort) *sockaddr {
	s := new(sockaddr)
	addr := a.Addr().Unmap()
	binary.NativeEndian.PutUint16(s.raw[0:], uint16(family(addr)))
	binary.BigEndian.PutUint16(s.raw[2:], a.Port())
	if addr.Is4() {
		v4 := addr.As4()
		copy(s.raw[4:], v4[:])
		s.len = unix.SizeofSockaddrInet4
		return s
	}
	v6 := addr.As16()
	copy(s.raw[8:], v6[:]) // after the flow label
	s.len = unix.SizeofSockaddrInet6
	return s
}

// family is the socket family of an address.
func family(a netip.Addr) int {
	if a.Unmap().Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
