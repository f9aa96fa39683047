// SPDX-License-Identifier: Apache-2.0

//go:build soak

package director

import (
	"net/netip"
	"testing"

	"imbang/internal/host"
	"imbang/internal/testenv"
)

// soakNet is a rig whose clients and servers are there, with sockets, in namespaces
// of their own. Each address of the clients' networks, of the servers and, for
// direct routing, of the services at the servers can be had.
type soakNet struct {
	*rig
	clients, servers *host.Namespace
}

func newSoakNet(t testing.TB, sizes Sizes) *soakNet {
	t.Helper()
	n := &soakNet{
		rig:     &rig{TB: t, ns: testenv.Namespace(t, "dir")},
		clients: testenv.Namespace(t, "cli"), servers: testenv.Namespace(t, "srv"),
	}
	for _, side := range []struct {
		dev, mac, peerMAC string
		hosts             *host.Namespace
	}{{clientDev, clientDevMAC, routerMAC, n.clients}, {serverDev, serverDevMAC, serverMAC, n.servers}} {
		n.must(host.Connect(host.End{NS: n.ns, Name: side.dev, MAC: side.mac}, host.End{NS: side.hosts, Name: "eth0", MAC: side.peerMAC}, host.LinkOptions{}))
		// XDP on the director's devices requires ends that poll and that
		// finish checksums.
		n.must(side.hosts.SetOffload("eth0", host.GRO, true), side.hosts.SetOffload("eth0", host.TxChecksum, false))
	}
	n.must(n.ns.Sysctl("net.ipv4.ip_forward", "1"), n.ns.Sysctl("net.ipv6.conf.all.forwarding", "1"),
		n.ns.Sysctl("net.ipv4.conf.all.send_redirects", "0"))
	for _, ns := range []*host.Namespace{n.ns, n.clients, n.servers} {
		n.must(ns.Sysctl("net.ipv4.conf.all.rp_filter", "0"), ns.Sysctl("net.ipv4.conf.default.rp_filter", "0"))
	}
	n.must(n.clients.Sysctl("net.ipv6.ip_nonlocal_bind", "1"))
	for _, f := range families {
		link, servers := netip.MustParsePrefix(f.clientLink), netip.MustParsePrefix(f.serverLink)
		router := netip.MustParseAddr(f.router)
		anywhere, virtual := netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("10.20.0.0/16")
		if f.number == ipv6.number {
			anywhere, virtual = netip.MustParsePrefix("::/0"), netip.MustParsePrefix("fd00:20::/64")
		}
		n.must(
			n.ns.AddAddresses(clientDev, link), n.ns.AddAddresses(serverDev, servers),
			n.ns.AddRoutes(host.Route{Dst: netip.MustParsePrefix(f.clients), Via: router}),
			n.ns.AddNeighbours(clientDev, routerMAC, router),
			n.clients.AddAddresses("eth0", netip.PrefixFrom(router, link.Bits())),
			n.clients.AddRoutes(host.Route{Dst: netip.MustParsePrefix(f.clients), Dev: "lo", Local: true},
				host.Route{Dst: anywhere, Via: link.Addr()}),
		)
		for i := range 32 {
			n.must(n.ns.AddNeighbours(serverDev, serverMAC, f.serverAddr(i)),
				n.servers.AddAddresses("eth0", netip.PrefixFrom(f.serverAddr(i), servers.Bits())))
		}
		n.must(n.servers.AddRoutes(host.Route{Dst: virtual, Dev: "lo", Local: true}, host.Route{Dst: anywhere, Via: servers.Addr()}))
	}
	n.must(n.ns.AddRoutes(host.Route{Dst: fuzzClients, Via: netip.MustParseAddr(ipv4.router)}))
	var err error
	n.client, err = n.ns.LinkIndex(clientDev)
	n.must(err)
	n.server, err = n.ns.LinkIndex(serverDev)
	n.must(err)
	n.open(sizes)
	t.Cleanup(n.remove)
	n.listen()
	return n
}

func (n *soakNet) attachMode(mode Mode) error {
	return n.ns.Do(func() error {
		_, err := n.AttachMode(clientDev, serverDev, HookAuto, mode)
		return err
	})
}
