// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/daemon/vrrp/socket"
	"imbang/internal/host"
	"imbang/internal/testenv"
)

// calm is an interval for tests that have no stall, also on a host with other load.
const calm = 250 * time.Millisecond

func TestPauses(t *testing.T) { testenv.Patient(t, testPauses) }

func testPauses(t testing.TB) {
	for failures, want := range []time.Duration{10 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second} {
		if got := pauseAfter(failures); got != want {
			t.Errorf("%d: %s", failures, got)
		}
	}
	if got := pauseAfter(1000); got != retryMost {
		t.Errorf("%s", got)
	}
}

// A group whose addresses cannot be configured does not interrupt the other director again, but
// takes over from one that is dead; and a reload lets it preempt.
func TestRefrains(t *testing.T) { testenv.Patient(t, testRefrains) }

func testRefrains(t testing.TB) {
	retryAfter = 300 * time.Millisecond
	defer func() { retryAfter = 10 * time.Second }()
	link := newNetwork(t)
	group := web(150, virtual4)
	group.Interval = calm
	group.Addresses = []vrrp.Address{{Device: "eth1", Prefix: netip.MustParsePrefix("2001:db8:5::1/64")}}
	all := group.AllAddresses()
	ns := link.host(1)
	if err := ns.Sysctl("net.ipv6.conf.eth1.disable_ipv6", "1"); err != nil {
		t.Fatal(err)
	}
	other := group
	other.Priority = 100
	b := newNode(t, link.host(2), other).start()
	b.await("master", b.is(vrrp.Master)) // or a would take over again after its fault
	a := newNode(t, ns, group).start()
	a.await("a fault, which is short", func() bool { return a.group().Refrains })
	b.await("the other one is master", b.is(vrrp.Master))
	a.await("the fault is over", a.is(vrrp.Backup))
	time.Sleep(5 * calm)
	if s := a.group(); s.State != vrrp.Backup.String() || s.Counts.Became != 1 || !s.Refrains {
		t.Errorf("it preempted: %+v", s)
	}
	b.stop()
	a.await("a dead one is replaced", func() bool { return a.group().Counts.Became >= 2 && a.is(vrrp.Fault)() })
	b.start()
	b.await("the other one is master again", b.is(vrrp.Master))
	if err := ns.Sysctl("net.ipv6.conf.eth1.disable_ipv6", "0"); err != nil {
		t.Fatal(err)
	}
	a.configure(func(*setup.Setup) {})
	a.await("it preempts after a reload", func() bool { return a.is(vrrp.Master)() && has(t, ns, all...) == len(all) })
	if s := a.group(); s.Refrains || len(s.Faults) > 0 {
		t.Errorf("%+v", s)
	}
}

// A removal that failed is tried again, after a pause that becomes longer; looks at the devices
// do not wait for it.
func TestFailedRemoval(t *testing.T) { testenv.Patient(t, testFailedRemoval) }

func testFailedRemoval(t testing.TB) {
	l := quietLoop(t, now(), "web")
	l.groups[0].next = 0 // it is not about its machine
	pause := cleanPauseLeast
	for range 10 {
		before := now()
		l.applied(&change{cleaned: true, err: errors.New("device or resource busy")})
		if wait := l.cleanAfter - before; !l.clean || wait < pause || wait > pause+time.Second {
			t.Fatalf("%t, after %s", l.clean, wait)
		}
		if got := l.next(before); got < before+pause {
			t.Fatalf("a round after %s", got-before)
		}
		l.flush(now())
		if l.busy {
			t.Fatal("tried at once")
		}
		l.looked(map[string]*host.Device{}, nil, l.changes)
		if l.looking {
			t.Fatal("the devices are read again and again")
		}
		pause = min(2*pause, cleanPauseMost)
	}
	l.applied(&change{cleaned: true})
	if l.cleanPause != 0 || l.cleanError != "" {
		t.Errorf("%+v", l.ledger)
	}
}

// A reload that moves an address from one group to another, both of which are master, keeps it.
func TestAddressMoves(t *testing.T) { testenv.Patient(t, testAddressMoves) }

func testAddressMoves(t testing.TB) {
	link := newNetwork(t)
	moving := vrrp.Address{Device: "eth1", Prefix: netip.MustParsePrefix("172.16.0.9/24")}
	first, second := web(150, virtual4), web(150, []netip.Prefix{netip.MustParsePrefix("10.20.0.4/24")})
	first.Addresses, second.Addresses = []vrrp.Address{moving}, nil
	first.Interval, second.Interval = calm, calm
	second.Name, second.Routers[0].ID = "mail", 53
	a := newNode(t, link.host(1), first, second).start()
	masters := func() bool { return a.is(vrrp.Master)() && a.status().Groups[1].State == vrrp.Master.String() }
	a.await("both are master", func() bool { return masters() && has(t, a.ns, moving) == 1 })
	for range 4 {
		a.configure(func(s *setup.Setup) {
			s.Groups[0].Addresses, s.Groups[1].Addresses = s.Groups[1].Addresses, s.Groups[0].Addresses
		})
		time.Sleep(30 * time.Millisecond)
		if has(t, a.ns, moving) != 1 || !masters() {
			t.Fatalf("%+v", a.status().Groups)
		}
	}
	if a.logged("added again") {
		t.Error("it was away")
	}
	a.configure(func(s *setup.Setup) { s.Groups[0].Addresses, s.Groups[1].Addresses = nil, nil })
	a.await("it is gone", func() bool { return has(t, a.ns, moving) == 0 })
}

// A master whose advertisements cannot be sent to anybody leaves.
func TestUnsent(t *testing.T) { testenv.Patient(t, testUnsent) }

func testUnsent(t testing.TB) {
	link := newNetwork(t)
	a := newNode(t, link.host(1), web(150, virtual4, own4(2), own4(9))).start()
	b := newNode(t, link.host(2), web(100, virtual4, own4(1))).start()
	a.await("master", a.is(vrrp.Master))
	b.await("it is followed", func() bool { return b.group().Routers[0].Master != "" })
	filter := func(command string) {
		t.Helper()
		if err := a.ns.Do(func() error { return run("nft", command) }); err != nil {
			t.Fatal(err)
		}
	}
	filter("add table ip f; add chain ip f out { type filter hook output priority 0; }; add rule ip f out ip daddr " + own4(9).String() + " ip protocol 112 drop")
	a.await("one peer", func() bool {
		return a.group().SendError == "router 51 on eth0 to "+own4(9).String()+": operation not permitted"
	})
	time.Sleep(6 * interval)
	if s := a.group(); s.State != vrrp.Master.String() || len(s.Faults) > 0 {
		t.Errorf("%+v", s)
	}
	filter("add rule ip f out ip protocol 112 drop")
	a.await("a fault", a.is(vrrp.Fault))
	if s := a.group(); !strings.HasPrefix(s.Faults[0], "no advertisement can be sent: ") || !s.Refrains {
		t.Errorf("%+v", s)
	}
	b.await("the other one is master", b.is(vrrp.Master))
	// One that has just become master has the same time.
	b.stop()
	a.stop()
	a.start()
	var since time.Time // as the process says: it is seen later
	a.await("master", func() bool { g := a.group(); since = g.Since; return g.State == vrrp.Master.String() })
	time.Sleep(2 * interval)
	if s := a.group(); s.State != vrrp.Master.String() && s.Since.Sub(since) < 3*interval {
		t.Errorf("%+v", s)
	}
	a.await("a fault again", a.is(vrrp.Fault))
}

// A notify command that hangs does not keep a handover.
func TestHandoverWithCommand(t *testing.T) { testenv.Patient(t, testHandoverWithCommand) }

func testHandoverWithCommand(t testing.TB) {
	replacementPatience = 200 * time.Millisecond
	defer func() { replacementPatience = 10 * time.Second }()
	link := newNetwork(t)
	group := web(150, virtual4)
	group.Interval = time.Second
	group.NotifyStates = map[vrrp.State][]string{vrrp.Master: {"/bin/sleep", "50"}}
	a := newNode(t, link.host(1), group).start()
	a.await("master", a.is(vrrp.Master))
	begin := time.Now()
	a.vanish(true)
	if took := time.Since(begin); took > 100*replacementPatience || !a.logged("notify commands are killed") {
		t.Errorf("it took %s", took)
	}
	a.start()
	if s := a.group(); s.State != vrrp.Master.String() || s.Counts.Stalls > 0 {
		t.Errorf("%+v", s)
	}
}

// Addresses of another program are reported, and stay.
func TestForeignAddresses(t *testing.T) { testenv.Patient(t, testForeignAddresses) }

func testForeignAddresses(t testing.TB) {
	link := newNetwork(t)
	ns := link.host(1)
	a := newNode(t, ns, web(150, virtual4)).start()
	a.await("master", a.is(vrrp.Master))
	if s := a.group(); len(s.Foreign) > 0 {
		t.Errorf("%+v", s)
	}
	a.stop()
	link.ip(ns, "address", "add", gateway.Prefix.String(), "dev", gateway.Device) // as a keepalived that was killed
	a.start()
	want := []string{"172.16.0.1/24 dev eth1"}
	a.await("it is reported", func() bool { return slices.Equal(a.group().Foreign, want) })
	a.awaitLog("added: they stay when the group leaves")
	link.ip(ns, "address", "delete", gateway.Prefix.String(), "dev", gateway.Device)
	a.await("it is the group's again", func() bool { return len(a.group().Foreign) == 0 && has(t, ns, gateway) == 1 })
}

// A device whose MTU was too small for IPv6 for a while receives by multicast again.
func TestMTU(t *testing.T) { testenv.Patient(t, testMTU) }

func testMTU(t testing.TB) {
	link := newNetwork(t)
	group, other := web(150, virtual6), web(100, virtual6)
	group.Interval, other.Interval = calm, calm // longer than b hears nothing before its fault is known
	a, b := newNode(t, link.host(1), group).start(), newNode(t, link.host(2), other).start()
	a.await("master", a.is(vrrp.Master))
	b.await("it is followed", func() bool { return b.group().Routers[0].Master != "" })
	link.ip(b.ns, "link", "set", "eth0", "mtu", "1200")
	b.await("a fault", b.is(vrrp.Fault))
	link.ip(b.ns, "link", "set", "eth0", "mtu", "1500")
	link.ip(b.ns, "address", "add", own6(2).String()+"/64", "dev", "eth0", "nodad")
	b.await("no fault", b.is(vrrp.Backup))
	time.Sleep(8 * calm)
	if s := b.group(); s.State != vrrp.Backup.String() || s.Counts.Became > 0 || s.Routers[0].Master == "" {
		t.Errorf("%+v", s)
	}
}

// A flood that the kernel can recognize does not disturb.
func TestFlood(t *testing.T) { testenv.Patient(t, testFlood) }

func testFlood(t testing.TB) {
	link := newNetwork(t)
	group, other := web(150, virtual4, own4(2)), web(100, virtual4, own4(1))
	group.Interval, other.Interval = calm, calm
	a, b := newNode(t, link.host(1), group).start(), newNode(t, link.host(2), other).start()
	flooder := link.host(3)
	a.await("master", a.is(vrrp.Master))
	b.await("it is followed", func() bool { return b.group().Routers[0].Master != "" })
	index, err := flooder.LinkIndex("eth0")
	if err != nil {
		t.Fatal(err)
	}
	var s *socket.Socket
	if err := flooder.Do(func() error { s, err = socket.Open(socket.Where{Device: "eth0", Index: index}); return err }); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	// Where the sender waits for a CPU, the other end reads each one as it comes: that is no flood.
	b.await("the flood is noticed", func() bool {
		for range 5000 {
			_ = s.Send([]byte{0x31, 51, 255, 1, 0, 1, 0, 0, 10, 20, 0, 1}, own4(3), own4(2))
		}
		return b.logged("a flood of advertisements")
	})
	time.Sleep(interval) // what was sent before is read
	strangers := b.group().Counts.Strangers
	for range 3000 {
		_ = s.Send([]byte{0x31, 51, 255, 1, 0, 1, 0, 0, 10, 20, 0, 1}, own4(3), own4(2))
	}
	time.Sleep(3 * interval)
	if g := b.group(); g.Counts.Strangers != strangers || g.State != vrrp.Backup.String() || g.Counts.Became > 0 {
		t.Errorf("%d strangers before: %+v", strangers, g)
	}
}
