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
	"imbang/internal/host"
	"imbang/internal/testenv"
)

// A reload adds and removes addresses, routers and groups without a transition.
func TestReload(t *testing.T) { testenv.Patient(t, testReload) }

func testReload(t testing.TB) {
	link := newNetwork(t)
	a := newNode(t, link.host(1), web(150, virtual4)).start()
	b := newNode(t, link.host(2), web(100, virtual4)).start()
	a.await("master", a.is(vrrp.Master))
	more := vrrp.Address{Device: "eth0", Prefix: netip.MustParsePrefix("10.20.0.3/24")}
	a.configure(func(s *setup.Setup) { s.Groups[0].Addresses = []vrrp.Address{more} })
	a.await("other addresses", func() bool { return has(t, a.ns, more) == 1 && has(t, a.ns, gateway) == 0 })
	six := setup.Router{Device: "eth0", ID: 52, Addresses: virtual6}
	second := web(150, []netip.Prefix{netip.MustParsePrefix("10.20.0.4/24")})
	second.Name, second.Routers[0].ID, second.Addresses = "mail", 53, nil
	for _, n := range []*node{a, b} {
		n.configure(func(s *setup.Setup) {
			s.Groups[0].Routers = append(slices.Clone(s.Groups[0].Routers), six)
			s.Groups[0].Interval = 2 * interval
			s.Groups = append(s.Groups, second)
		})
	}
	a.await("both groups", func() bool {
		return has(t, a.ns, vrrp.Address{Device: "eth0", Prefix: virtual6[1]}) == 1 && a.status().Groups[1].State == vrrp.Master.String() != (b.status().Groups[1].State == vrrp.Master.String())
	})
	if got := a.group(); got.Counts.Left != 0 || got.Counts.Became != 1 || got.IntervalMS != float64(2*interval/time.Millisecond) || len(got.Routers) != 2 {
		t.Errorf("%+v", got)
	}
	b.await("the new master is seen", func() bool { return b.group().Routers[1].Master != "" })
	if got := b.group(); got.Counts.Became != 0 {
		t.Errorf("%+v", got)
	}
	for _, n := range []*node{a, b} {
		n.configure(func(s *setup.Setup) { s.Groups = s.Groups[:1] })
	}
	mail := vrrp.Address{Device: "eth0", Prefix: second.Routers[0].Addresses[0]}
	a.await("the second group is gone", func() bool { return has(t, a.ns, mail)+has(t, b.ns, mail) == 0 })
	// A priority below the other one's moves it.
	a.configure(func(s *setup.Setup) { s.Groups[0].Priority = 50 })
	b.await("the other one is better", b.is(vrrp.Master))
	a.await("it has left", a.is(vrrp.Backup))
}

// A group that waits for its multicast group when it is configured otherwise, or when its device
// gets the address to send from, starts as things are then.
func TestReloadBeforeStart(t *testing.T) { testenv.Patient(t, testReloadBeforeStart) }

func testReloadBeforeStart(t testing.TB) {
	ns := newNetwork(t).host(1)
	if err := ns.Do(func() error {
		l := quietLoop(t, now())
		if err := l.open(); err != nil {
			return err
		}
		defer l.close()
		l.started = true
		devices, err := host.Devices()
		if err != nil {
			return err
		}
		waiting, err := newPoller()
		if err != nil {
			return err
		}
		defer waiting.close()
		real := l.worker
		l.worker = &worker{poll: waiting} // the kernel does not answer
		defer func() { l.worker = real }()
		bare := *devices["eth0"]
		bare.Addresses = nil
		l.devices = map[string]*host.Device{"eth0": &bare, "eth1": devices["eth1"]}
		wanted := setup.Setup{Groups: []setup.Group{web(150, virtual4)}}
		l.reload(&wanted, nil)
		g := l.groups[0]
		if g.machine.State() != vrrp.Initialize || !g.joining() {
			t.Fatalf("%v", g.machine.State())
		}
		other := wanted
		other.Groups = []setup.Group{web(150, virtual4)}
		other.Groups[0].Interval, other.Groups[0].Priority = 7*interval, 120
		l.reload(&other, nil)
		l.devices = devices
		for _, f := range waiting.take() { // it answers
			f()
		}
		for _, f := range l.poll.take() {
			f()
		}
		s := g.machine.Snapshot()
		if s.State != vrrp.Backup || s.MasterInterval != 7*interval || s.Priority != 120 || g.config.Routers[0].Source != own4(1) {
			t.Errorf("%v, interval %v, priority %d, source %v", s.State, s.MasterInterval, s.Priority, g.config.Routers[0].Source)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// A configuration that cannot be read changes nothing.
func TestReloadRefused(t *testing.T) { testenv.Patient(t, testReloadRefused) }

func testReloadRefused(t testing.TB) {
	link := newNetwork(t)
	a := newNode(t, link.host(1), web(150, virtual4)).start()
	a.await("master", a.is(vrrp.Master))
	l := &loop{Options: Options{Log: logOf(a)}}
	l.reload(nil, errors.New("first\nsecond"))
	if l.loadError != "first\nsecond" || !a.logged("first; second") {
		t.Errorf("%q", l.loadError)
	}
	l.reload(nil, nil)
	if !strings.Contains(l.loadError, "no section vrrp") {
		t.Errorf("%q", l.loadError)
	}
}

// A changed script makes no transition: its earlier verdict counts until it has one.
func TestChangedScript(t *testing.T) { testenv.Patient(t, testChangedScript) }

func testChangedScript(t testing.TB) {
	link := newNetwork(t)
	script := setup.Script{Name: "s", Command: []string{"/bin/true"}, Interval: 20 * time.Millisecond, Timeout: time.Minute, Rise: 1, Fall: 1}
	bonus := script
	bonus.Name, bonus.Weight = "bonus", 60
	group, other := web(100, virtual4), web(150, virtual4)
	group.Interval, other.Interval = calm, calm
	group.Scripts = []string{"s", "bonus"}
	a := newNode(t, link.host(1), group)
	a.wanted.Scripts = []setup.Script{bonus, script}
	a.start()
	b := newNode(t, link.host(2), other).start()
	a.await("master", func() bool { return a.is(vrrp.Master)() && a.group().Priority == 160 })
	b.await("it is followed", func() bool { return b.is(vrrp.Backup)() && b.group().Routers[0].Master != "" })
	left := a.group().Counts.Left
	stays := func(what, verdict string) {
		t.Helper()
		time.Sleep(calm)
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
