// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"net"
	"net/netip"
	"strings"

	"imbang/internal/host"
)

// The devices of a director, and the hardware addresses of both and of the
// other end of both.
const (
	benchClientDev, benchServerDev = "ext0", "int0"
	benchMAC, benchOutsideMAC      = "02:00:00:00:00:01", "02:00:00:00:00:02"
)

// benchNetwork is the address plan of a family: clients and servers need not be
// there.
type benchNetwork struct {
	service                netip.AddrPort
	server                 netip.Addr // the first
	clientSide, serverSide netip.Prefix
	router                 netip.Addr
	clients                netip.Prefix
}

var benchNetworks = map[int]benchNetwork{
	4: {netip.MustParseAddrPort("10.20.0.1:80"), netip.MustParseAddr("172.16.0.10"),
		netip.MustParsePrefix("10.9.0.1/30"), netip.MustParsePrefix("172.16.0.1/16"), netip.MustParseAddr("10.9.0.2"),
		netip.MustParsePrefix("10.10.0.0/16")},
	6: {netip.MustParseAddrPort("[fd00:20::1]:80"), netip.MustParseAddr("fd00:16::10"),
		netip.MustParsePrefix("fd00:9::1/64"), netip.MustParsePrefix("fd00:16::1/64"), netip.MustParseAddr("fd00:9::2"),
		netip.MustParsePrefix("fd00:10::/64")},
}

// connect builds it: the director's namespace has a device to each side, whose
// other ends lie outside.
func (n benchNetwork) connect(inside, outside *host.Namespace) error {
	if err := link(inside, outside); err != nil {
		return err
	}
	return n.address(inside)
}

// link makes the devices, for the address plans of both families. The director complains if IPv4 is
// not forwarded.
func link(inside, outside *host.Namespace) error {
	for _, dev := range []string{benchClientDev, benchServerDev} {
		err := host.Connect(host.End{NS: inside, Name: dev, MAC: benchMAC},
			host.End{NS: outside, Name: far(dev), MAC: benchOutsideMAC}, host.LinkOptions{})
		if err != nil {
			return err
		}
	}
	return errors.Join(inside.Sysctl("net.ipv4.ip_forward", "1"), inside.Sysctl("net.ipv6.conf.all.forwarding", "1"))
}

// address gives the devices addresses, and routes to clients.
func (n benchNetwork) address(inside *host.Namespace) error {
	return errors.Join(
		inside.AddAddresses(benchClientDev, n.clientSide),
		inside.AddAddresses(benchServerDev, n.serverSide),
		inside.AddRoutes(host.Route{Dst: n.clients, Via: n.router}),
		inside.AddNeighbours(benchClientDev, benchOutsideMAC, n.router),
	)
}

// far is the other end of one of the director's devices.
func far(dev string) string { return strings.Replace(dev, "0", "1", 1) }

// servers are the first so many.
func (n benchNetwork) servers(count int) (list []netip.Addr) {
	for at := n.server; len(list) < count; at = at.Next() {
		list = append(list, at)
	}
	return list
}

// datagrams are those that the clients send to an address.
func (n benchNetwork) datagrams(to netip.AddrPort) datagrams {
	return datagrams{to: to, from: n.clients.Addr(), src: hardware(benchOutsideMAC), dst: hardware(benchMAC)}
}

func hardware(text string) (mac [6]byte) {
	parsed, _ := net.ParseMAC(text) // of constants
	copy(mac[:], parsed)
	return mac
}
