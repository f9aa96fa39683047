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
)

// A reload adds and removes addresses, routers and groups without a transition.
func TestReload(t *testing.T) {
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

// A configuration that cannot be read changes nothing.
func TestReloadRefused(t *testing.T) {
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
func TestChangedScript(t *testing.T) {
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
