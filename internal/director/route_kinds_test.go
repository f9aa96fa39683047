// SPDX-License-Identifier: Apache-2.0

package director

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"imbang/internal/model"
)

// routeKinds are ways to give a server a route: lines of ip(8), in which S is the server's
// prefix, R and Q are two routers at device D, and C is the client at device E. Rules need
// routing rules to begin with.
var routeKinds = []struct {
	name, commands string
	only           model.Family // 0: both
	rules          bool
	size           int    // of the datagram; 0: what only a narrow route refuses
	mtu            uint32 // that the client is told; 0: the datagram arrives
	differs        bool   // plain forwarding tells something else
}{
	{name: "plain", commands: "route add S via R mtu 1400", mtu: 1400},
	{name: "without an MTU", commands: "route add S via R"},
	{name: "the segments' size alone", commands: "route add S via R advmss 1000"},
	{name: "nexthop object", commands: "nexthop add id 1 via R dev D\nroute add S nhid 1 mtu 1400", mtu: 1400},
	{name: "group of nexthops", commands: "nexthop add id 1 via R dev D\nnexthop add id 2 via Q dev D\nnexthop add id 10 group 1/2\nroute add S nhid 10 mtu 1400", mtu: 1400},
	{name: "multipath", commands: "route add S mtu 1400 nexthop via R dev D nexthop via Q dev D", mtu: 1400},
	{name: "lowest metric", commands: "route add S via R metric 10 mtu 1400\nroute add S via R metric 20 mtu 1300", mtu: 1400},
	{name: "type of service of others", commands: "route add S via R mtu 1400\nroute add S tos 0x10 via R mtu 1300", only: model.IPv4, mtu: 1400},
	{name: "router of the other family", commands: "route add S via inet6 fd00:16::2 dev D mtu 1400", only: model.IPv4, mtu: 1400},
	{name: "device without a carrier", commands: "link add idle0 type veth peer name idle1\naddress add IDLE dev idle0 nodad\nlink set idle0 up\n" +
		"route add S via AWAY dev idle0 metric 5 mtu 1300\nroute add S via R metric 50 mtu 1400", mtu: 1400},
	{name: "sources of others", commands: "route add S from LAN via R mtu 1300\nroute add S via R mtu 1400", only: model.IPv6},
	{name: "source of its own", commands: "route add S from C via R mtu 1400", only: model.IPv6, differs: true},
	{name: "nested prefixes", commands: "NESTED\nroute add S via R mtu 1400", mtu: 1400},
	{name: "narrow in IPv4", commands: "route add S via R mtu 600", only: model.IPv4, size: 601, mtu: 600},
	{name: "too big for the device too", commands: "route add S via R mtu 1400", only: model.IPv4, size: 1600, mtu: 1400},
	// Linux tells of the device's MTU first.
	{name: "too big for the device too", commands: "route add S via R mtu 1400", only: model.IPv6, size: 1600, mtu: 1400, differs: true},
	// A host sends 1280 bytes whatever it is told. Linux refuses them where it sends.
	{name: "narrower than IPv6 allows", commands: "route add S via R mtu 1000", only: model.IPv6, mtu: 1280, differs: true},
	{name: "narrower than IPv6 allows, just fits", commands: "route add S via R mtu 1000", only: model.IPv6, size: 1280, differs: true},
	{name: "narrower than IPv6 allows, locked", commands: "route add S via R mtu lock 1000", only: model.IPv6, mtu: 1280},
	{name: "narrower than IPv6 allows, locked, just fits", commands: "route add S via R mtu lock 1000", only: model.IPv6, size: 1280, differs: true},

	{name: "locked in another table", commands: "rule add to S lookup 100\nroute add S via R table 100 mtu lock 1400", rules: true, mtu: 1400},
	{name: "not locked in another table", commands: "rule add to S lookup 100\nroute add S via R table 100 mtu 1400", rules: true, differs: true},
	{name: "another router", commands: "rule add to S lookup 100\nroute add S via Q table 100\nroute add S via R mtu 1300", rules: true},
	{name: "another router, nexthop object", commands: "rule add to S lookup 100\nroute add S via Q table 100\nnexthop add id 1 via R dev D\nroute add S nhid 1 mtu 1300", rules: true},
	{name: "another device, nexthop object", commands: "rule add to S lookup 100\nroute add S via Q table 100\nnexthop add id 1 via C dev E\nroute add S nhid 1 mtu 1300", rules: true},
	{name: "another router, group", commands: "rule add to S lookup 100\nroute add S via Q table 100\nnexthop add id 1 via R dev D\nnexthop add id 2 via C dev E\nnexthop add id 10 group 1/2\nroute add S nhid 10 mtu 1300", rules: true},
	{name: "another router, multipath", commands: "rule add to S lookup 100\nroute add S via Q table 100\nroute add S mtu 1300 nexthop via R dev D nexthop via C dev E", rules: true},
}

// A client gets the same error about each kind of route as when the director only
// forwards, with and without routing rules, which have the route's next hop compared.
func TestRouteKindsAsForwarded(t *testing.T) {
	requireRouteMTU(t)
	for _, rules := range []bool{false, true} {
		c := newCrossing(t, 0)
		for _, p := range shores {
			c.prepareKinds(p, rules)
			client, server := c.socket(c.client, at(p.client, 4000)), c.socket(c.server, at(p.server, 9))
			c.serve(service(model.UDP, at(p.vip, 9), "rr"), model.Server{Addr: netip.MustParseAddr(p.server), Port: 9, Weight: 1})
			for _, kind := range routeKinds {
				if kind.only != 0 && kind.only != p.number || kind.rules && !rules {
					continue
				}
				t.Run(fmt.Sprintf("%s, rules %t, %s", p.name, rules, kind.name), func(t *testing.T) {
					c := crossing{c.in(t), c.client, c.router, c.server}
					c.route(p, kind.commands)
					size := cmp.Or(kind.size, 1468)
					plain := c.fate(client, server, at(p.server, 9), size)
					balanced := c.fate(client, server, at(p.vip, 9), size)
					if balanced.mtu != kind.mtu || (balanced != plain) != kind.differs {
						t.Errorf("%d bytes, balanced: %s; forwarded: %s; want MTU %d", size, balanced, plain, kind.mtu)
					}
				})
			}
		}
	}
}

// prepareKinds gives a crossing a second router's address, links to clients with longer
// packets than to servers, and a routing rule about none of its addresses.
func (c crossing) prepareKinds(p shore, rules bool) {
	c.Helper()
	c.must(c.router.AddAddresses(routerDev, netip.PrefixFrom(netip.MustParseAddr(p.routerDir).Next(), p.link)),
		c.ns.Sysctl("net.ipv4.conf.all.ignore_routes_with_linkdown", "1"),
		c.ns.Sysctl("net.ipv6.conf.all.ignore_routes_with_linkdown", "1"),
		c.client.Do(func() error { return exec.Command("ip", "link", "set", "eth0", "mtu", "9000").Run() }))
	c.ip(p, "link set E mtu 9000", true)
	if rules {
		c.ip(p, "rule add to LAN lookup 101", true)
	}
}

// route runs lines of ip(8) on the director, and takes their effects back when the test ends.
func (c crossing) route(p shore, commands string) {
	c.Helper()
	lines := strings.Split(strings.TrimSuffix(commands, "\n"), "\n")
	c.Cleanup(func() {
		for _, line := range slices.Backward(lines) {
			words := strings.Fields(line)
			switch words[0] {
			case "NESTED":
				c.ip(p, "route flush table main proto 77", true)
			case "route", "rule":
				c.ip(p, strings.Replace(line, " add ", " del ", 1), false) // a nexthop's routes went with it
			case "nexthop":
				c.ip(p, "nexthop del id "+words[3], true)
			case "link":
				if words[1] == "add" {
					c.ip(p, "link del "+words[2], true)
				}
			}
		}
		time.Sleep(believed)
	})
	server := netip.MustParseAddr(p.server)
	for _, line := range lines {
		if line != "NESTED" {
			c.ip(p, line, true)
			continue
		}
		for length := 1; length < server.BitLen(); length++ {
			if length != p.link { // the one of the crossing
				c.ip(p, fmt.Sprintf("route append %s via R mtu 1300 proto 77", netip.PrefixFrom(server, length).Masked()), true)
			}
		}
	}
	time.Sleep(believed)
}

// ip runs a line of ip(8) on the director, with the names of routeKinds.
func (c crossing) ip(p shore, line string, must bool) {
	c.Helper()
	server := netip.MustParseAddr(p.server)
	with := map[string]string{"S": hostRoute(server).String(), "R": p.routerDir, "Q": netip.MustParseAddr(p.routerDir).Next().String(),
		"D": serverDev, "C": p.client, "E": clientDev, "IDLE": "10.77.0.1/24", "AWAY": "10.77.0.2", "LAN": "10.78.0.0/24"}
	if server.Is6() {
		with["IDLE"], with["AWAY"], with["LAN"] = "fd00:77::1/64", "fd00:77::2", "fd00:78::/64"
	}
	words := strings.Fields(line)
	for i, word := range words {
		words[i] = cmp.Or(with[word], word)
	}
	if words[0] == "rule" || words[1] == "flush" {
		words = append([]string{map[bool]string{true: "-6", false: "-4"}[server.Is6()]}, words...)
	}
	c.must(c.ns.Do(func() error {
		if said, err := exec.Command("ip", words...).CombinedOutput(); err != nil && must {
			return fmt.Errorf("ip %s: %s: %w", strings.Join(words, " "), said, err)
		}
		return nil
	}))
}

// fate sends a datagram and returns the error about it; the zero value if it arrives.
func (c crossing) fate(client, server *net.UDPConn, to string, size int) told {
	c.Helper()
	c.send(client, to, size, 64)
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if heard := c.hear(client, 20*time.Millisecond); heard != (told{}) {
			heard.by = netip.Addr{} // the address that the packet was for, as of Linux's IPVS
			return heard
		}
		c.must(server.SetReadDeadline(time.Now().Add(20 * time.Millisecond)))
		if n, _, err := server.ReadFromUDPAddrPort(make([]byte, 10000)); err == nil && n > 0 {
			return told{}
		} else if !errors.Is(err, os.ErrDeadlineExceeded) {
			c.must(err)
		}
	}
	c.Errorf("%d bytes to %s neither arrive nor are answered", size, to)
	return told{}
}
