// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"net"
	"net/netip"
)

// Source is the address that the kernel would send from to a destination, in the
// network namespace of the calling thread. Connecting a datagram socket looks up the route
// and sends nothing.
func Source(to netip.Addr) (netip.Addr, error) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 9)))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("route to %s: %w", to, err)
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().WithZone(""), nil
}

// IsOwn reports whether packets for an address stay in the network namespace of the calling thread.
// Source does not tell: of the second address of a network the first one is the source.
func IsOwn(addr netip.Addr) (bool, error) { return new(Links).isLocal(addr) }
