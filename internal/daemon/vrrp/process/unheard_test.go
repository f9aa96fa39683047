// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/host"
	"imbang/internal/testenv"
)

// inside connects a host's eth1 to a link of the servers, with an address by a number.
func (n *network) inside(ns *host.Namespace, number byte) netip.Addr {
	n.Helper()
	n.ip(ns, "link", "delete", "eth1")
	port := "inside" + string('0'+number)
	if err := host.Connect(host.End{NS: ns, Name: "eth1"}, host.End{NS: n.middle, Name: port}, host.LinkOptions{}); err != nil {
		n.Fatal(err)
	}
	n.ip(n.middle, "link", "set", port, "master", "br1")
	own := netip.AddrFrom4([4]byte{172, 16, 0, 10 + number})
	if err := ns.AddAddresses("eth1", netip.PrefixFrom(own, 24)); err != nil {
		n.Fatal(err)
	}
	return own
}

// On the servers' device, where no advertisement is heard, packets are handed to the other director,
// too, in both directions, and what it sends to this one as a server is not scheduled again.
func TestServersDevice(t *testing.T) { testenv.Patient(t, testServersDevice) }

func testServersDevice(t testing.TB) {
	link := newNetwork(t)
	link.ip(link.middle, "link", "add", "br1", "type", "bridge", "forward_delay", "0", "mcast_snooping", "0")
	link.ip(link.middle, "link", "set", "br1", "up")
	a, b := newNode(t, link.host(1), web(150, virtual4)), newNode(t, link.host(2), web(100, virtual4))
	planeA, planeB := newPlane(), newPlane()
	a.plane, b.plane = func() (Plane, error) { return planeA, nil }, func() (Plane, error) { return planeB, nil }
	a.wanted.Grace, b.wanted.Grace = time.Hour, time.Hour
	link.inside(a.ns, 1)
	b.wanted.Servers = []netip.Addr{link.inside(b.ns, 2)}
	to := func(from, to *node, device string) string {
		t.Helper()
		mac, err := to.ns.LinkMAC(device)
		if err != nil {
			t.Fatal(err)
		}
		index, err := from.ns.LinkIndex(device)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%d %s", index, mac)
	}
	hands := func(f *fakePlane, all ...string) func() bool {
		return f.has(func(f *fakePlane) bool {
			return !slices.ContainsFunc(all, func(one string) bool { return !slices.Contains(f.hands, one) })
		})
	}
	a.start()
	a.await("master", func() bool { return a.is(vrrp.Master)() && has(t, a.ns, gateway) == 1 })
	b.start()
	b.await("the other director is a client of this server", planeB.has(func(f *fakePlane) bool { return slices.Equal(f.peers, []string{to(b, a, "eth1")}) }))
	b.configure(func(s *setup.Setup) { s.Servers = nil })
	b.await("and of none", planeB.has(func(f *fakePlane) bool { return len(f.peers) == 0 }))
	a.stop()
	b.await("the backup takes over", b.is(vrrp.Master))
	b.await("the former master gets what is late", hands(planeB, to(b, a, "eth0"), to(b, a, "eth1")))
	clear := func(f *fakePlane) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.hands = nil
	}
	clear(planeB)
	a.start()
	a.await("it preempts", a.is(vrrp.Master))
	b.await("what is late goes to the successor", hands(planeB, to(b, a, "eth0"), to(b, a, "eth1")))
	a.await("it gets what it has", hands(planeA, to(a, b, "eth0"), to(a, b, "eth1")))
	clear(planeA)
	if _, err := a.giveUp(awaited); err != nil {
		t.Fatal(err)
	}
	a.await("a planned move, from a director that has not asked since", hands(planeA, to(a, b, "eth0"), to(a, b, "eth1")))
}
