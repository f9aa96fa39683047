// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

const (
	// unknownMTU is that of a destination to which there is no route [bytes].
	unknownMTU = 1500
	// leastMTU is the smallest that is used: an entry has to fit. IP divides larger datagrams.
	leastMTU = 1280
)

// routeMTU is the smallest MTU of the routes to the other directors.
func routeMTU(c *Config) int {
	least := 0
	for _, to := range c.To {
		if mtu := mtuTo(c.Listen.Addr(), to); mtu > 0 && (least == 0 || mtu < least) {
			least = mtu
		}
	}
	if least == 0 {
		return unknownMTU
	}
	return max(least, leastMTU)
}

// mtuTo is the MTU of the route from an address to another one, which the kernel says of a
// connected socket; 0: there is no route.
func mtuTo(from netip.Addr, to netip.AddrPort) (mtu int) {
	conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.UDPAddrFromAddrPort(to))
	if err != nil {
		return 0
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	level, option := unix.IPPROTO_IP, unix.IP_MTU
	if to.Addr().Is6() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU
	}
	if err := raw.Control(func(fd uintptr) {
		if v, err := unix.GetsockoptInt(int(fd), level, option); err == nil {
			mtu = v
		}
	}); err != nil {
		return 0
	}
	return mtu
}
