// SPDX-License-Identifier: Apache-2.0

package director

import (
	"net"
	"net/netip"
	"strconv"

	"imbang/internal/model"
)

// family is the rig's network in one address family, so that a test can run in
// both.
type family struct {
	name       string
	number     model.Family
	header     int    // bytes of the IP header
	icmp       uint8  // protocol number
	clientLink string // the director's address towards the clients
	router     string // behind which they are
	clients    string // their network
	client     string // one of them
	vips       string // the last byte is missing
	serverLink string
	servers    string // likewise
	inner      string // a router on the servers' side
	nowhere    string // there is no route to it
	loopback   string
}

var (
	ipv4 = family{
		name: "IPv4", number: model.IPv4, header: 20, icmp: 1,
		clientLink: "10.9.0.1/30", router: "10.9.0.2", clients: "10.10.0.0/16", client: "10.10.0.2",
		vips: "10.20.0.", serverLink: "172.16.0.1/24", servers: "172.16.0.", inner: "172.16.0.254", nowhere: "198.51.100.1", loopback: "127.0.0.1",
	}
	ipv6 = family{
		name: "IPv6", number: model.IPv6, header: 40, icmp: 58,
		clientLink: "fd00:9::1/64", router: "fd00:9::2", clients: "fd00:10::/32", client: "fd00:10::2",
		vips: "fd00:20::", serverLink: "fd00:172::1/64", servers: "fd00:172::", inner: "fd00:172::fe", nowhere: "2001:db8::1", loopback: "::1",
	}
	families = []family{ipv4, ipv6}
)

// other is the other one.
func (f family) other() family {
	if f.number == ipv4.number {
		return ipv6
	}
	return ipv4
}

// at is an address with a port.
func at(addr string, port int) string { return net.JoinHostPort(addr, strconv.Itoa(port)) }

// own is the director's address towards the servers.
func (f family) own() netip.Addr { return netip.MustParsePrefix(f.serverLink).Addr() }

// vip is the n-th virtual address.
func (f family) vip(n int) string { return f.vips + strconv.Itoa(n) }

// server is the address of the i-th server.
func (f family) server(i int) string { return f.servers + strconv.Itoa(10+i) }

func (f family) serverAddr(i int) netip.Addr { return netip.MustParseAddr(f.server(i)) }
