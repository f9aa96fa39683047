// SPDX-License-Identifier: Apache-2.0

package process

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/host"
	"imbang/internal/testenv"
)

// thousands is a loop with a master of so many addresses on eth1, that the host has.
func thousands(t testing.TB, n int) (*loop, *group, time.Duration) {
	t.Helper()
	l, g, begin := pendingMaster(t)
	l.busy = false
	var err error
	if l.poll, err = newPoller(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.poll.close)
	many := g.setup
	many.Addresses = nil
	for i := range n {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 17, byte(i >> 8), byte(i)}), 32)
		many.Addresses = append(many.Addresses, vrrp.Address{Device: "eth1", Prefix: p})
	}
	g.changed(&many)
	g.reload(begin)
	for _, a := range many.AllAddresses() {
		d := l.devices[a.Device]
		d.Addresses = append(d.Addresses, host.DeviceAddress{Prefix: a.Prefix, Protocol: host.Mark})
	}
	l.clean = false
	return l, g, begin
}

// took refuses what takes the loop longer than some milliseconds: a master advertises meanwhile.
func took(t testing.TB, what string, f func()) {
	t.Helper()
	if used := testenv.ThreadTime(t, f); used > 100*time.Millisecond {
		t.Errorf("%s: %v", what, used)
	}
}

// A master of thousands of addresses goes on while devices are read, at a reload and a handover.
func TestThousandsOfAddresses(t *testing.T) { testenv.Patient(t, testThousandsOfAddresses) }

func testThousandsOfAddresses(t testing.TB) {
	const n = 8000
	var l *loop
	var g *group
	var begin time.Duration // of which it stays: how long the test takes does not count
	took(t, "a reload adds them", func() { l, g, begin = thousands(t, n) })
	for a := range l.known {
		l.known[a] = true
	}
	took(t, "a look", func() { l.verify(now()) })
	if l.clean || len(g.foreign) > 0 || len(g.holds) < n {
		t.Errorf("clean %t, foreign %d, %d held", l.clean, len(g.foreign), len(g.holds))
	}
	s := g.machine.Snapshot()
	l.known, l.toAdd, g.holds = map[vrrp.Address]bool{}, nil, nil
	took(t, "a handover", func() {
		if err := g.restore(begin, s, memory{}); err != nil {
			t.Fatal(err)
		}
	})
	few := g.setup
	few.Addresses = few.Addresses[:n/2]
	took(t, "a reload removes some", func() {
		g.changed(&few)
		g.reload(begin)
	})
	if len(g.holds) != len(few.AllAddresses()) || len(l.known) != len(g.holds) || len(l.toAdd) != len(g.holds) {
		t.Errorf("%d held, %d known, %d to add", len(g.holds), len(l.known), len(l.toAdd))
	}
	took(t, "it leaves", func() { g.call(func(m *vrrp.Machine, out *vrrp.Output) { m.SetFault(begin, true, out) }) })
	if len(g.holds)+len(l.known)+len(l.toAdd) > 0 {
		t.Errorf("%d held, %d known, %d to add", len(g.holds), len(l.known), len(l.toAdd))
	}
}

// Whether this director is a server itself is asked each second, of all of its addresses and all
// servers.
func TestThousandsOfServers(t *testing.T) { testenv.Patient(t, testThousandsOfServers) }

func testThousandsOfServers(t testing.TB) {
	l, g, _ := thousands(t, 4000)
	for i := range 50_000 {
		l.setup.Servers = append(l.setup.Servers, netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}))
	}
	d := l.devices["eth1"]
	took(t, "another device", func() {
		if l.isServerOn(d) {
			t.Error("it is none")
		}
	})
	d.Addresses = append(d.Addresses, host.DeviceAddress{Prefix: netip.PrefixFrom(l.setup.Servers[40_000], 32)})
	if !l.isServerOn(d) {
		t.Error("it is one")
	}
	g.heard[0] = l.setup.Servers[0]
	if got := g.peerServers(0); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

// The worker adds thousands of addresses in parts, and a master is not in fault while the kernel
// answers, however long all of them take.
func TestPartsOfThousands(t *testing.T) { testenv.Patient(t, testPartsOfThousands) }

func testPartsOfThousands(t testing.TB) {
	l, g, _ := thousands(t, 3*addAtOnce)
	g.pendingSince = now() - overdueLeast + 10*time.Millisecond
	l.applied(&change{added: map[vrrp.Address]error{g.holds[0]: nil}})
	if at := g.overdueAt(); !g.pending() || at < now()+overdueLeast/2 {
		t.Errorf("pending %t, overdue in %v", g.pending(), at-now())
	}
	l.worker = &worker{poll: l.poll} // which does nothing
	before := len(l.toAdd)
	if l.flush(now()); len(l.toAdd) != before-addAtOnce {
		t.Errorf("%d of %d are left", len(l.toAdd), before)
	}
}

// Announcements of thousands of addresses leave in several rounds, each as often as it has to.
// Those of addresses that were released meanwhile do not.
func TestAnnouncementsInRounds(t *testing.T) { testenv.Patient(t, testAnnouncementsInRounds) }

func testAnnouncementsInRounds(t testing.TB) {
	l, g, _ := thousands(t, announceAtOnce)
	for a := range l.known {
		l.known[a] = true
	}
	// A loopback accepts packets, and nobody hears them.
	loopback, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if l.announcer, err = host.NewAnnouncer(); err != nil {
		t.Skip(err)
	}
	defer l.announcer.Close()
	d := l.devices["eth1"]
	d.Index, d.MAC = loopback.Index, net.HardwareAddr{2, 0, 0, 0, 0, 1}
	g.announce(g.setup.Addresses, 3)
	if g.announced != announceAtOnce || len(l.outbox) != 1 || l.next(now()) > now() {
		t.Fatalf("%d were announced, %d are left", g.announced, len(l.outbox))
	}
	l.sendAnnouncements()
	if g.announced != 2*announceAtOnce {
		t.Errorf("%d were announced", g.announced)
	}
	g.release(g.setup.AllAddresses())
	if l.sendAnnouncements(); g.announced != 2*announceAtOnce || l.outbox != nil {
		t.Errorf("%d were announced, %d are left", g.announced, len(l.outbox))
	}
}
