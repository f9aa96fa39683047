// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/testenv"
)

// fakePlane notes what is written to a data plane.
type fakePlane struct {
	mu       sync.Mutex
	groups   map[netip.Addr]uint32
	leases   map[uint32]time.Duration
	grace    time.Duration
	hands    []string
	attached []int
	stale    bool
	closed   bool
	released bool
	peers    []string
	guards   int   // calls of Guard
	refuses  error // of Guard
}

func (f *fakePlane) Guard(groups map[netip.Addr]uint32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.guards++; f.refuses != nil {
		return f.refuses
	}
	for _, slot := range groups {
		if !slices.Contains(slices.Collect(maps.Values(f.groups)), slot) {
			delete(f.leases, slot) // as the data plane
		}
	}
	f.groups = maps.Clone(groups)
	return nil
}

func (f *fakePlane) Renew(group uint32, until time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leases[group] = until
	return nil
}

func (f *fakePlane) Grace(until time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.grace = until
	return nil
}

func (f *fakePlane) Hand(index int, to net.HardwareAddr, until time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if until == 0 {
		f.hands = append(f.hands, fmt.Sprintf("%d ends", index))
		return nil
	}
	f.hands = append(f.hands, fmt.Sprintf("%d %s", index, to))
	return nil
}

func (f *fakePlane) Peers(all []PeerAddress) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.peers = nil
	for _, one := range all {
		f.peers = append(f.peers, fmt.Sprintf("%d %s", one.Index, one.MAC))
	}
	return nil
}

func (f *fakePlane) Release() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.released, f.groups = true, nil
	return nil
}

func (f *fakePlane) Stale() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stale
}

func (f *fakePlane) Attached() ([]int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.attached, nil
}

func (f *fakePlane) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

// answers reports whether the kernel would answer for an address.
func (f *fakePlane) answers(a string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	slot, guarded := f.groups[netip.MustParseAddr(a)]
	return !guarded || f.leases[slot] > now()
}

func (f *fakePlane) has(what func(f *fakePlane) bool) func() bool {
	return func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return what(f)
	}
}

// planes are those that a node finds, one after the other.
type planes struct {
	mu  sync.Mutex
	now *fakePlane
}

func (p *planes) set(f *fakePlane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now != nil {
		p.now.mu.Lock()
		p.now.stale = true
		p.now.mu.Unlock()
	}
	p.now = f
}

func (p *planes) open() (Plane, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now == nil {
		return nil, nil
	}
	return p.now, nil
}

func newPlane() *fakePlane { return &fakePlane{leases: map[uint32]time.Duration{}} }

// A master has a fresh lease in the director that is loaded, also in one that is loaded
// later or anew; a backup has none. Grace begins at a takeover, and what the former master
// has is handed to it if it resigned or was preempted. At the end nothing is guarded.
func TestLeases(t *testing.T) { testenv.Patient(t, testLeases) }

func testLeases(t testing.TB) {
	link := newNetwork(t)
	a := newNode(t, link.host(1), web(150, virtual4))
	b := newNode(t, link.host(2), web(100, virtual4))
	var ofA, ofB planes
	first := newPlane()
	ofA.set(first)
	a.plane, b.plane = ofA.open, ofB.open
	a.wanted.Grace, b.wanted.Grace = time.Hour, time.Hour
	a.start()
	a.await("master", a.is(vrrp.Master))
	a.await("a lease", func() bool { return first.answers("10.20.0.1") && first.answers("172.16.0.1") })
	if !first.has(func(f *fakePlane) bool { return len(f.groups) == 3 && f.grace > now() && len(f.hands) == 0 })() {
		t.Errorf("%+v", first)
	}
	b.start()
	later := newPlane()
	ofB.set(later)
	b.await("the director that was loaded later", later.has(func(f *fakePlane) bool { return len(f.groups) == 3 }))
	if later.answers("10.20.0.1") {
		t.Error("the backup answers")
	}
	second := newPlane()
	ofA.set(second)
	a.await("another director", func() bool {
		return second.answers("10.20.0.1") && first.has(func(f *fakePlane) bool { return f.closed })()
	})
	if second.has(func(f *fakePlane) bool { return f.grace != 0 })() {
		t.Error("another director is no takeover")
	}

	mac, err := a.ns.LinkMAC("eth0")
	if err != nil {
		t.Fatal(err)
	}
	index, err := b.ns.LinkIndex("eth0")
	if err != nil {
		t.Fatal(err)
	}
	b.await("the master's hardware address", func() bool { return b.group().Routers[0].MasterMAC == mac.String() })
	a.stop()
	b.await("the backup takes over", b.is(vrrp.Master))
	if !second.has(func(f *fakePlane) bool { return f.released })() || second.answers("10.20.0.1") && len(second.groups) > 0 {
		t.Errorf("after the end: %+v", second)
	}
	if want := []string{fmt.Sprintf("%d %s", index, mac)}; !later.has(func(f *fakePlane) bool { return slices.Equal(f.hands, want) && f.grace > now() })() || !later.answers("10.20.0.1") {
		t.Errorf("%+v, want %v", later, want)
	}
	a.start()
	a.await("it preempts", a.is(vrrp.Master))
	a.await("the other one gets what it has", second.has(func(f *fakePlane) bool { return len(f.hands) >= 1 }))
	b.await("backup", b.is(vrrp.Backup))
	b.await("no lease", func() bool { return !later.answers("10.20.0.1") })
	a.vanish(false)
	later.mu.Lock()
	later.hands, later.grace = nil, 0
	later.mu.Unlock()
	b.await("it takes over from a dead one", b.is(vrrp.Master))
	if !later.has(func(f *fakePlane) bool {
		return !slices.ContainsFunc(f.hands, func(h string) bool { return !strings.HasSuffix(h, "ends") }) && f.grace > now()
	})() {
		t.Errorf("%+v", later)
	}
	if !second.has(func(f *fakePlane) bool { return len(f.groups) == 3 })() || second.answers("10.20.0.1") {
		t.Errorf("a dead one answers: %+v", second)
	}
}

// Groups that come and go have leases of their own.
func TestLeasesOfReload(t *testing.T) { testenv.Patient(t, testLeasesOfReload) }

func testLeasesOfReload(t testing.TB) {
	link := newNetwork(t)
	mail := web(150, []netip.Prefix{netip.MustParsePrefix("10.20.0.4/24")})
	mail.Name, mail.Routers[0].ID, mail.Addresses = "mail", 53, nil
	group := web(150, virtual4)
	group.Interval, mail.Interval = time.Second, time.Second // leases are longer than a handover
	a := newNode(t, link.host(1), group)
	var of planes
	plane := newPlane()
	of.set(plane)
	a.plane = of.open
	a.start()
	a.await("master", a.is(vrrp.Master))
	a.configure(func(s *setup.Setup) { s.Groups = append(s.Groups, mail) })
	if plane.answers("10.20.0.4") {
		t.Error("the new group answers before it is master")
	}
	a.await("both", func() bool { return plane.answers("10.20.0.4") && plane.answers("10.20.0.1") })
	if !plane.has(func(f *fakePlane) bool {
		return f.groups[netip.MustParseAddr("10.20.0.4")] != f.groups[netip.MustParseAddr("10.20.0.1")] && len(f.groups) == 4
	})() {
		t.Errorf("%+v", plane)
	}
	a.configure(func(s *setup.Setup) { s.Groups = s.Groups[1:] })
	a.await("one is left", plane.has(func(f *fakePlane) bool { return len(f.groups) == 1 }))
	if !plane.answers("10.20.0.4") {
		t.Error("the group that stays does not answer")
	}
	a.vanish(true)
	if !plane.answers("10.20.0.4") || plane.has(func(f *fakePlane) bool { return f.released })() {
		t.Error("a handover ends the lease")
	}
}

// A director that is loaded and not attached to a group's device is a fault, and one that is
// being made is not.
func TestDetached(t *testing.T) { testenv.Patient(t, testDetached) }

func testDetached(t testing.TB) {
	link := newNetwork(t)
	a := newNode(t, link.host(1), web(150, virtual4))
	var of planes
	plane := newPlane()
	index, err := a.ns.LinkIndex("eth0")
	if err != nil {
		t.Fatal(err)
	}
	a.plane = of.open
	a.wanted.Director = &setup.Director{Devices: []string{"eth0", "eth2"}} // eth2 is none of the group's
	a.start()
	a.await("master without a director", a.is(vrrp.Master))
	of.set(plane)
	time.Sleep(lookEvery / 2)
	plane.mu.Lock()
	plane.attached = []int{index}
	plane.mu.Unlock()
	time.Sleep(2 * lookEvery)
	if s := a.group(); s.Counts.Left != 0 {
		t.Errorf("%+v", s)
	}
	plane.mu.Lock()
	plane.attached = nil
	plane.mu.Unlock()
	a.await("a fault", a.is(vrrp.Fault))
	if faults := a.group().Faults; len(faults) != 1 || !strings.Contains(faults[0], "not attached to device eth0") {
		t.Errorf("%q", faults)
	}
	plane.mu.Lock()
	plane.attached = []int{index}
	plane.mu.Unlock()
	a.await("master again", a.is(vrrp.Master))
}

// A director of higher priority whose host has no data plane does not preempt one that works,
// and leaves to it; it serves if it is the only one.
func TestNoDirector(t *testing.T) { testenv.Patient(t, testNoDirector) }

func testNoDirector(t testing.TB) {
	link := newNetwork(t)
	a := newNode(t, link.host(1), web(150, virtual4))
	b := newNode(t, link.host(2), web(100, virtual4))
	var of [2]planes
	var loaded [2]*fakePlane
	for i, n := range []*node{a, b} {
		index, err := n.ns.LinkIndex("eth0")
		if err != nil {
			t.Fatal(err)
		}
		loaded[i] = newPlane()
		loaded[i].attached = []int{index}
		n.plane, n.wanted.Director = of[i].open, &setup.Director{Devices: []string{"eth0"}}
	}
	of[1].set(loaded[1])
	b.start()
	b.await("master", b.is(vrrp.Master))
	a.start()
	a.await("a master is followed", func() bool { return a.group().Routers[0].Master != "" })
	a.stays("without a director it stays backup", 8*interval, a.is(vrrp.Backup))
	if g := a.group(); g.Priority != 1 || len(g.Faults) != 0 {
		t.Errorf("%+v", g)
	}
	of[0].set(loaded[0])
	a.await("it preempts with a director", a.is(vrrp.Master))
	of[0].set(nil)
	b.await("it leaves without one", b.is(vrrp.Master))
	b.vanish(false)
	a.await("the only one serves", a.is(vrrp.Master))
}

// A master that leaves drops packets of unknown connections before it resigns, and hands them
// to its successor; what it handed on as master ends.
func TestFormerMaster(t *testing.T) { testenv.Patient(t, testFormerMaster) }

func testFormerMaster(t testing.TB) {
	link := newNetwork(t)
	a := newNode(t, link.host(1), web(150, virtual4))
	b := newNode(t, link.host(2), web(100, virtual4))
	var of [2]planes
	var loaded [2]*fakePlane
	var index [2]int
	var mac [2]string
	for i, n := range []*node{a, b} {
		var err error
		if index[i], err = n.ns.LinkIndex("eth0"); err != nil {
			t.Fatal(err)
		}
		hardware, err := n.ns.LinkMAC("eth0")
		if err != nil {
			t.Fatal(err)
		}
		mac[i], loaded[i] = hardware.String(), newPlane()
		of[i].set(loaded[i])
		n.plane, n.wanted.Grace = of[i].open, time.Minute
	}
	said := func(i int, want ...string) func() bool {
		return loaded[i].has(func(f *fakePlane) bool { return slices.Equal(f.hands, want) })
	}
	b.start()
	b.await("master", b.is(vrrp.Master))
	a.start()
	a.await("it preempts", a.is(vrrp.Master))
	b.await("backup", b.is(vrrp.Backup))
	toA, toB := fmt.Sprintf("%d %s", index[1], mac[0]), fmt.Sprintf("%d %s", index[0], mac[1])
	b.await("it hands to its successor", said(1, toA))
	if !loaded[1].has(func(f *fakePlane) bool { return f.grace > now() && f.grace < now()+2*time.Second })() {
		t.Errorf("the grace period of a former master: %v from now", loaded[1].grace-now())
	}
	a.await("it hands to the former master", said(0, toB))
	if _, err := a.giveUp(awaited); err != nil {
		t.Fatal(err)
	}
	a.await("that ends, and its successor gets what it does not know", said(0, toB, fmt.Sprintf("%d ends", index[0]), toB))
	if !loaded[0].has(func(f *fakePlane) bool { return f.grace < now()+2*time.Second })() {
		t.Errorf("the grace period that began with its takeover goes on: %v from now", loaded[0].grace-now())
	}
}

// An error of the data plane is reported until what failed works, logged once, and guarding
// the addresses is tried again.
func TestPlaneRefuses(t *testing.T) { testenv.Patient(t, testPlaneRefuses) }

func testPlaneRefuses(t testing.TB) {
	link := newNetwork(t)
	a := newNode(t, link.host(1), web(150, virtual4))
	var of planes
	plane := newPlane()
	plane.refuses = errors.New("no room")
	of.set(plane)
	a.plane = of.open
	a.start()
	a.await("master", a.is(vrrp.Master))
	a.stays("leases that are renewed do not hide it", 3*interval, func() bool { return a.status().DirectorError == "addresses: no room" })
	a.await("another try", plane.has(func(f *fakePlane) bool { return f.guards >= 3 }))
	a.mu.Lock()
	if n := strings.Count(a.log.String(), "no room"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	a.mu.Unlock()
	plane.mu.Lock()
	plane.refuses = nil
	plane.mu.Unlock()
	a.await("guarded", func() bool { return a.status().DirectorError == "" })
	if !plane.answers("10.20.0.1") || len(plane.groups) != 3 {
		t.Errorf("%+v", plane)
	}
}

// Two reports of the director's devices are a second apart, also if others were asked for
// meanwhile: a director that is between being loaded and being attached is no fault.
func TestReportsAreApart(t *testing.T) { testenv.Patient(t, testReportsAreApart) }

func testReportsAreApart(t testing.TB) {
	l := &loop{Options: Options{Log: slog.New(slog.DiscardHandler)}}
	for range 3 {
		l.surrounded(&findings{attached: []int{}})
	}
	if len(l.attached) != 1 || l.absent > 1 {
		t.Errorf("%d reports, %d looks without a director", len(l.attached), l.absent)
	}
	l.lookedAt -= lookEvery
	l.surrounded(&findings{attached: []int{}})
	if len(l.attached) != 2 || l.absent != 2 {
		t.Errorf("%d reports, %d looks without a director", len(l.attached), l.absent)
	}
}

// The hardware address of the other director is found again on a device that was made anew.
func TestNeighbourOfNewDevice(t *testing.T) { testenv.Patient(t, testNeighbourOfNewDevice) }

func testNeighbourOfNewDevice(t testing.TB) {
	link := newNetwork(t)
	a := newNode(t, link.host(1), web(150, virtual4)).start()
	b := newNode(t, link.host(2), web(100, virtual4)).start()
	a.await("master", a.is(vrrp.Master))
	mac, err := a.ns.LinkMAC("eth0")
	if err != nil {
		t.Fatal(err)
	}
	known := func() bool { return b.group().Routers[0].MasterMAC == mac.String() }
	b.await("the master's hardware address", known)
	link.ip(b.ns, "link", "del", "eth0")
	b.await("a fault", b.is(vrrp.Fault))
	link.connect(b.ns, 2)
	b.await("backup", b.is(vrrp.Backup))
	b.await("the master's hardware address on the new device", known)
}

// The data plane is told of another director that is a server of this one, and of no other.
func TestPeerServers(t *testing.T) { testenv.Patient(t, testPeerServers) }

func testPeerServers(t testing.TB) {
	link := newNetwork(t)
	a := newNode(t, link.host(1), web(150, virtual4)).start()
	b := newNode(t, link.host(2), web(100, virtual4))
	var of planes
	plane := newPlane()
	of.set(plane)
	b.plane, b.wanted.Servers = of.open, []netip.Addr{own4(1), own4(9)}
	b.start()
	mac, err := a.ns.LinkMAC("eth0")
	if err != nil {
		t.Fatal(err)
	}
	index, err := b.ns.LinkIndex("eth0")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{fmt.Sprintf("%d %s", index, mac)}
	b.await("the other director", plane.has(func(f *fakePlane) bool { return slices.Equal(f.peers, want) }))
	b.configure(func(s *setup.Setup) { s.Servers = []netip.Addr{own4(9)} })
	b.await("it is no server any more", plane.has(func(f *fakePlane) bool { return len(f.peers) == 0 }))
	// One that the configuration names is known to a master, too, which hears nobody.
	var ofA planes
	planeA := newPlane()
	ofA.set(planeA)
	c := newNode(t, link.host(3), web(200, virtual4))
	c.plane, c.wanted.Peers = ofA.open, []netip.Addr{own4(1), own4(3), own4(99)}
	c.start()
	if index, err = c.ns.LinkIndex("eth0"); err != nil {
		t.Fatal(err)
	}
	want = []string{fmt.Sprintf("%d %s", index, mac)}
	c.await("the configured one", planeA.has(func(f *fakePlane) bool { return slices.Equal(f.peers, want) }))
	c.await("master", c.is(vrrp.Master))
	c.configure(func(s *setup.Setup) { s.Peers = nil })
	c.await("it is not any more", planeA.has(func(f *fakePlane) bool { return len(f.peers) == 0 }))
}
