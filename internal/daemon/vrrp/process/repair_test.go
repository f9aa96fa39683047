// SPDX-License-Identifier: Apache-2.0

package process

import (
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/daemon/vrrp/socket"
	"imbang/internal/host"
)

func TestPauses(t *testing.T) {
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
func TestRefrains(t *testing.T) {
	retryAfter = 300 * time.Millisecond
	defer func() { retryAfter = 10 * time.Second }()
	link := newNetwork(t)
	group := web(150, virtual4)
	group.Addresses = []vrrp.Address{{Device: "eth1", Prefix: netip.MustParsePrefix("2001:db8:5::1/64")}}
	all := group.AllAddresses()
	ns := link.host(1)
	if err := ns.Sysctl("net.ipv6.conf.eth1.disable_ipv6", "1"); err != nil {
		t.Fatal(err)
	}
	a := newNode(t, ns, group).start()
	group.Priority = 100
	b := newNode(t, link.host(2), group).start()
	a.await("a fault", a.is(vrrp.Fault))
	b.await("the other one is master", b.is(vrrp.Master))
	a.await("the fault is over", a.is(vrrp.Backup))
	time.Sleep(10 * interval)
	if s := a.group(); s.State != vrrp.Backup.String() || s.Counts.Became != 1 || !s.Refrains {
		t.Errorf("it preempted: %+v", s)
	}
	b.stop()
	a.await("a dead one is replaced", func() bool { return a.group().Counts.Became == 2 && a.is(vrrp.Fault)() })
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

// A device that is renamed does not keep addresses of the group.
func TestRenamedDevice(t *testing.T) {
	link := newNetwork(t)
	a := newNode(t, link.host(1), web(150, virtual4)).start()
	group := web(0, virtual4)
	all := group.AllAddresses()
	a.await("master", func() bool { return a.is(vrrp.Master)() && has(t, a.ns, all...) == len(all) })
	rename := func() error { return run("ip", "link", "set", "eth1", "name", "eth7") }
	if err := a.ns.Do(rename); err != nil { // before Linux 6.2 a device that is up cannot be renamed
		link.ip(a.ns, "link", "set", "eth1", "down")
		if err := a.ns.Do(rename); err != nil {
			t.Fatal(err)
		}
	}
	a.await("a fault", func() bool { return slices.Contains(a.group().Faults, "there is no device eth1") })
	renamed := vrrp.Address{Device: "eth7", Prefix: gateway.Prefix}
	a.await("no address is left", func() bool { return has(t, a.ns, append(all, renamed)...) == 0 })
	link.ip(a.ns, "link", "set", "eth7", "name", "eth1")
	link.ip(a.ns, "link", "set", "eth1", "up")
	a.await("master again", func() bool { return a.is(vrrp.Master)() && has(t, a.ns, all...) == len(all) })
}

// A reload that moves an address from one group to another, both of which are master, keeps it.
func TestAddressMoves(t *testing.T) {
	link := newNetwork(t)
	moving := vrrp.Address{Device: "eth1", Prefix: netip.MustParsePrefix("172.16.0.9/24")}
	first, second := web(150, virtual4), web(150, []netip.Prefix{netip.MustParsePrefix("10.20.0.4/24")})
	first.Addresses, second.Addresses = []vrrp.Address{moving}, nil
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

// A changed script makes no transition: its earlier verdict counts until it has one.
func TestChangedScript(t *testing.T) {
	link := newNetwork(t)
	script := setup.Script{Name: "s", Command: []string{"/bin/true"}, Interval: 20 * time.Millisecond, Timeout: time.Minute, Rise: 1, Fall: 1}
	bonus := script
	bonus.Name, bonus.Weight = "bonus", 60
	group := web(100, virtual4)
	group.Scripts = []string{"s", "bonus"}
	a := newNode(t, link.host(1), group)
	a.wanted.Scripts = []setup.Script{bonus, script}
	a.start()
	b := newNode(t, link.host(2), web(150, virtual4)).start()
	a.await("master", func() bool { return a.is(vrrp.Master)() && a.group().Priority == 160 })
	b.await("it is followed", func() bool { return b.is(vrrp.Backup)() && b.group().Routers[0].Master != "" })
	left := a.group().Counts.Left
	stays := func(what, verdict string) {
		t.Helper()
		time.Sleep(3 * interval)
		s := a.status()
		if g := s.Groups[0]; g.Priority != 160 || g.Counts.Left != left || len(g.Faults) > 0 {
			t.Errorf("%s: %+v", what, g)
		}
		for _, one := range s.Scripts {
			if one.Verdict != verdict {
				t.Errorf("%s: %+v", what, one)
			}
		}
	}
	change := func(f func(s *setup.Script)) {
		t.Helper()
		a.configure(func(s *setup.Setup) {
			s.Scripts = slices.Clone(s.Scripts)
			for i := range s.Scripts {
				f(&s.Scripts[i])
			}
		})
	}
	change(func(s *setup.Script) { s.Interval = time.Minute })
	stays("another interval", "up")
	change(func(s *setup.Script) { s.Command = []string{"/bin/sleep", "50"} })
	stays("another command", "unknown")
	a.configure(func(s *setup.Setup) {
		s.Scripts = append(slices.Clone(s.Scripts), setup.Script{Name: "new", Command: []string{"/bin/sleep", "50"}, Interval: time.Minute, Timeout: time.Minute, Rise: 1, Fall: 1})
		s.Groups[0].Scripts = append(slices.Clone(s.Groups[0].Scripts), "new")
	})
	stays("another script", "unknown")
	change(func(s *setup.Script) { s.Command = []string{"/bin/false"} })
	a.await("its result counts", a.is(vrrp.Fault))
}

// A master whose advertisements cannot be sent to anybody leaves.
func TestUnsent(t *testing.T) {
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
}

// Addresses of another program are reported, and stay.
func TestForeignAddresses(t *testing.T) {
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
	if !a.logged("added: they stay when the group leaves") {
		t.Error("it is not in the log")
	}
	link.ip(ns, "address", "delete", gateway.Prefix.String(), "dev", gateway.Device)
	a.await("it is the group's again", func() bool { return len(a.group().Foreign) == 0 && has(t, ns, gateway) == 1 })
}

// A device whose MTU was too small for IPv6 for a while receives by multicast again.
func TestMTU(t *testing.T) {
	link := newNetwork(t)
	a := newNode(t, link.host(1), web(150, virtual6)).start()
	b := newNode(t, link.host(2), web(100, virtual6)).start()
	a.await("master", a.is(vrrp.Master))
	b.await("it is followed", func() bool { return b.group().Routers[0].Master != "" })
	link.ip(b.ns, "link", "set", "eth0", "mtu", "1200")
	b.await("a fault", b.is(vrrp.Fault))
	link.ip(b.ns, "link", "set", "eth0", "mtu", "1500")
	link.ip(b.ns, "address", "add", own6(2).String()+"/64", "dev", "eth0", "nodad")
	b.await("no fault", b.is(vrrp.Backup))
	time.Sleep(8 * interval)
	if s := b.group(); s.State != vrrp.Backup.String() || s.Counts.Became > 0 || s.Routers[0].Master == "" {
		t.Errorf("%+v", s)
	}
}

// A flood that the kernel can recognize does not disturb.
func TestFlood(t *testing.T) {
	link := newNetwork(t)
	a := newNode(t, link.host(1), web(150, virtual4, own4(2))).start()
	b := newNode(t, link.host(2), web(100, virtual4, own4(1))).start()
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
	for range 15000 {
		_ = s.Send([]byte{0x31, 51, 255, 1, 0, 1, 0, 0, 10, 20, 0, 1}, own4(3), own4(2))
	}
	b.await("the flood is noticed", func() bool { return b.logged("a flood of advertisements") })
	strangers := b.group().Counts.Strangers
	for range 3000 {
		_ = s.Send([]byte{0x31, 51, 255, 1, 0, 1, 0, 0, 10, 20, 0, 1}, own4(3), own4(2))
	}
	time.Sleep(3 * interval)
	if g := b.group(); g.Counts.Strangers != strangers || g.State != vrrp.Backup.String() || g.Counts.Became > 0 {
		t.Errorf("%d strangers before: %+v", strangers, g)
	}
}

// quietLoop is a loop with machines of groups that have started to listen at a time.
func quietLoop(t *testing.T, at time.Duration, names ...string) *loop {
	t.Helper()
	l := &loop{Options: Options{Log: slog.New(slog.DiscardHandler)}, ledger: ledger{known: map[vrrp.Address]bool{}}}
	for _, name := range names {
		s := web(100, virtual4)
		s.Name = name
		g := newGroup(l, &s)
		if err := g.make(); err != nil {
			t.Fatal(err)
		}
		var out vrrp.Output
		g.machine.Start(at, &out)
		g.next = out.Next
		l.groups = append(l.groups, g)
	}
	return l
}

// A round that took too long reads advertisements before the machines tick, which then see the
// time as it is; and it does so a bounded number of times.
func TestLongRound(t *testing.T) {
	begin := now() - time.Second
	l := quietLoop(t, begin, "a", "b")
	tickAt := begin + 2*interval
	for i := range moreTimes {
		if l.tick(tickAt, true) {
			t.Fatalf("round %d ticked by an old time", i)
		}
	}
	if !l.tick(tickAt, true) {
		t.Fatal("never")
	}
	for _, g := range l.groups {
		if g.machine.Counts().Stalls != 1 {
			t.Errorf("%s does not know what time it is", g.setup.Name)
		}
	}
	// What was not read is before backups, but not before masters.
	l = quietLoop(t, now()-2*interval, "a")
	if l.tick(now(), false) {
		t.Error("a backup ticked before all was read")
	}
	l = quietLoop(t, now()-2*interval, "a")
	l.groups[0].call(func(m *vrrp.Machine, out *vrrp.Output) { m.Take(now()-time.Millisecond, out) })
	time.Sleep(interval)
	if !l.tick(now(), false) {
		t.Error("a master did not tick")
	}
}

// The leases of all groups end before any of them resigns.
func TestStopOrder(t *testing.T) {
	link := newNetwork(t)
	if err := link.host(1).Do(func() error {
		l := quietLoop(t, now(), "a", "b")
		ended := 0
		l.Lease = func(_ string, until time.Duration) {
			if until != 0 {
				return
			}
			ended++
			for _, g := range l.groups {
				if g.unsent > 1 { // of becoming master
					t.Errorf("%s has resigned", g.setup.Name)
				}
			}
		}
		if err := l.open(); err != nil {
			return err
		}
		defer l.close()
		var err error
		if l.devices, err = host.Devices(); err != nil {
			return err
		}
		delete(l.devices, "eth0") // nothing can be sent
		for _, g := range l.groups {
			g.call(func(m *vrrp.Machine, out *vrrp.Output) { m.Take(now(), out) })
		}
		l.stop()
		for _, g := range l.groups {
			if ended != 2 || g.unsent != 2 || g.machine.State() != vrrp.Initialize {
				t.Errorf("%d ended, %d advertisements", ended, g.unsent)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
