// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/place"
	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/host"
	"imbang/internal/testenv"
)

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// One of two directors has all addresses. The other one takes over when it leaves and when
// it is killed, and gives way when it is back.
func TestTwoDirectors(t *testing.T) {
	for _, c := range []struct {
		name           string
		addresses      []netip.Prefix
		peersA, peersB []netip.Addr
	}{
		{"IPv4 multicast", virtual4, nil, nil},
		{"IPv4 unicast", virtual4, []netip.Addr{own4(2)}, []netip.Addr{own4(1)}},
		{"IPv6 multicast", virtual6, nil, nil},
		{"IPv6 unicast", virtual6, []netip.Addr{own6(2)}, []netip.Addr{own6(1)}},
	} {
		testenv.PatientRun(t, c.name, func(t testing.TB) {
			link := newNetwork(t)
			a := newNode(t, link.host(1), web(150, c.addresses, c.peersA...)).start()
			b := newNode(t, link.host(2), web(100, c.addresses, c.peersB...)).start()
			group := web(0, c.addresses)
			all := group.AllAddresses()
			only := func(with, without *node) func() bool {
				return func() bool { return has(t, with.ns, all...) == len(all) && has(t, without.ns, all...) == 0 }
			}
			a.await("the better one is master", a.is(vrrp.Master))
			a.await("it has the addresses", only(a, b))
			b.await("the backup follows it", func() bool {
				return b.group().Routers[0].Master == a.group().Routers[0].Source && b.is(vrrp.Backup)()
			})
			a.stop()
			b.await("the backup takes over after a resignation", only(b, a))
			if got := b.group(); got.Cause != vrrp.CauseResigned.String() {
				t.Errorf("%+v", got)
			}
			a.start()
			a.await("the better one is master again", only(a, b))
			a.vanish(false)
			b.await("the backup takes over after silence", b.is(vrrp.Master))
			if got := b.group(); got.Cause != vrrp.CauseSilence.String() || has(t, a.ns, all...) != len(all) {
				t.Errorf("%+v", got)
			}
			a.start() // it begins by removing what it left
			a.await("the better one is master once more", only(a, b))
			for _, n := range []*node{a, b} {
				if s := n.group(); s.Counts.Unsent > 0 || s.Counts.Stalls > 0 && !raceOrSlow(s) || s.Counts.Strangers > 0 {
					t.Errorf("%+v", s)
				}
				for _, r := range n.group().Refused {
					if r.Count > 0 {
						t.Errorf("%+v", r)
					}
				}
			}
		})
	}
}

// raceOrSlow: a machine with other load may stop a process that is not real-time.
func raceOrSlow(s Group) bool { return s.Counts.Stalls < 3 }

// A handover to another program makes no transition, and no address is away.
func TestHandover(t *testing.T) { testenv.Patient(t, testHandover) }

func testHandover(t testing.TB) {
	link := newNetwork(t)
	group := web(150, virtual4)
	group.Interval = 800 * time.Millisecond // three of them are longer than a handover takes
	a := newNode(t, link.host(1), group).start()
	group.Priority = 100
	b := newNode(t, link.host(2), group).start()
	all := group.AllAddresses()
	a.await("master", a.is(vrrp.Master))
	b.await("a master is seen", func() bool { return b.group().Routers[0].Master != "" })
	became := b.group().Counts.Became
	for range 3 {
		a.vanish(true)
		if got := has(t, a.ns, all...); got != len(all) {
			t.Fatalf("%d addresses during the handover", got)
		}
		a.start()
		if s := a.group(); s.State != vrrp.Master.String() || s.Counts.Became != 0 {
			t.Fatalf("%+v", s)
		}
		b.vanish(true)
		b.start()
		time.Sleep(2 * group.Interval)
	}
	if s := a.group(); s.Counts.Left != 0 || has(t, a.ns, all...) != len(all) {
		t.Errorf("%+v", s)
	}
	if s := b.group(); s.State != vrrp.Backup.String() || s.Counts.Became != 0 || became != 0 {
		t.Errorf("%+v", s)
	}
	// A handover that nobody took up in time is none.
	a.vanish(true)
	b.await("the backup takes over", b.is(vrrp.Master))
	a.start()
	a.await("master again", a.is(vrrp.Master))
	if s := a.group(); s.Counts.Became != 1 {
		t.Errorf("%+v", s)
	}
}

// A fault that ends while nothing runs has ended for the next program.
func TestHandoverInFault(t *testing.T) { testenv.Patient(t, testHandoverInFault) }

func testHandoverInFault(t testing.TB) {
	link := newNetwork(t)
	group := web(150, virtual4)
	group.Interval = 200 * time.Millisecond
	a := newNode(t, link.host(1), group).start()
	a.await("master", a.is(vrrp.Master))
	link.ip(a.ns, "link", "set", "eth0", "down")
	a.await("a fault", a.is(vrrp.Fault))
	a.vanish(true)
	a.start()
	if s := a.group(); s.State != vrrp.Fault.String() {
		t.Errorf("the fault goes on, and the group is %+v", s)
	}
	a.vanish(true)
	link.ip(a.ns, "link", "set", "eth0", "up")
	a.start()
	a.await("master again", a.is(vrrp.Master))
}

// What another process has left is not used, nor a file that is damaged; and nobody takes what
// a process that runs has left for its next program.
func TestForeignHandover(t *testing.T) { testenv.Patient(t, testForeignHandover) }

func testForeignHandover(t testing.TB) {
	dir := t.TempDir()
	inherit := func() (handover, error) {
		l := &loop{Options: Options{Dir: dir, Log: slog.New(slog.DiscardHandler)}}
		h, err := l.inherit()
		if err == nil {
			l.lock.Close()
		}
		return h, err
	}
	foreign := handover{PID: os.Getpid() + 1, Groups: map[string]vrrp.Snapshot{"web": {}}}
	if err := writeHandover(dir, foreign); err != nil {
		t.Fatal(err)
	}
	lock, err := place.TakeVRRP(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inherit(); !errors.Is(err, place.ErrVRRPRunning) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(place.VRRPHandover(dir)); err != nil {
		t.Error(err)
	}
	lock.Close()
	for range 2 { // the second time it is damaged
		if h, err := inherit(); err != nil || h.Groups != nil {
			t.Errorf("%+v, %v", h, err)
		}
		if _, err := os.Stat(place.VRRPHandover(dir)); !errors.Is(err, os.ErrNotExist) {
			t.Error("the file is still there")
		}
		if err := os.WriteFile(place.VRRPHandover(dir), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	own := func() handover {
		return handover{Format: handoverFormat, PID: os.Getpid(), Process: identity(), Groups: map[string]vrrp.Snapshot{"web": {Seen: now()}}}
	}
	for name, change := range map[string]func(h *handover){
		"":                             func(*handover) {},
		"a process of the same number": func(h *handover) { h.Process += "0" },
		"an earlier version, and another process": func(h *handover) { h.Process = "" },
		"a later format":   func(h *handover) { h.Format++ },
		"an earlier start": func(h *handover) { h.Groups["web"] = vrrp.Snapshot{Seen: now() + time.Hour} },
	} {
		h := own()
		change(&h)
		if err := writeHandover(dir, h); err != nil {
			t.Fatal(err)
		}
		if h, err := inherit(); err != nil || (h.Groups != nil) != (name == "") {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
	}
	// An earlier version of the program is known by the lock that it left.
	if h := (&handover{PID: os.Getpid()}); !h.own(true) || h.own(false) {
		t.Error("what an earlier version handed over is not used, or that of another process is")
	}
	// Groups can be used whose configuration cannot.
	h := own()
	group := web(100, nil)
	h.Setup = &setup.Setup{Groups: []setup.Group{group}}
	if err := writeHandover(dir, h); err != nil {
		t.Fatal(err)
	}
	if h, err := inherit(); err != nil || h.Groups == nil || h.Setup != nil {
		t.Errorf("%+v, %v", h, err)
	}
}

// Faults of devices begin and end, and devices that are made again are used.
func TestDevices(t *testing.T) { testenv.Patient(t, testDevices) }

func testDevices(t testing.TB) {
	link := newNetwork(t)
	a := newNode(t, link.host(1), web(150, virtual4)).start()
	b := newNode(t, link.host(2), web(100, virtual4)).start()
	group := web(0, virtual4)
	all := group.AllAddresses()
	fault := func(text string) func() bool {
		return func() bool {
			g := a.group()
			return g.State == vrrp.Fault.String() && len(g.Faults) > 0 && strings.Contains(strings.Join(g.Faults, "; "), text) && b.is(vrrp.Master)()
		}
	}
	again := func() bool { return a.is(vrrp.Master)() && has(t, a.ns, all...) == len(all) && b.is(vrrp.Backup)() }
	a.await("master", again)
	for _, c := range []struct {
		name, fault string
		begin, end  func()
	}{
		{"down", "device eth0 is down", func() { link.ip(a.ns, "link", "set", "eth0", "down") }, func() { link.ip(a.ns, "link", "set", "eth0", "up") }},
		{
			"no carrier", "device eth0 is down", func() { link.ip(link.middle, "link", "set", "port1", "down") },
			func() { link.ip(link.middle, "link", "set", "port1", "up") },
		},
		{
			"the other device", "device eth1 is down", func() { link.ip(a.ns, "link", "set", "eth1", "down") },
			func() { link.ip(a.ns, "link", "set", "eth1", "up") },
		},
		{"deleted", "there is no device eth0", func() { link.ip(a.ns, "link", "delete", "eth0") }, func() { link.connect(a.ns, 1) }},
		{
			"no address", "device eth0 has no IPv4 address to send from", func() { link.ip(a.ns, "address", "delete", "10.20.0.11/24", "dev", "eth0") },
			func() { link.ip(a.ns, "address", "add", "10.20.0.11/24", "dev", "eth0") },
		},
	} {
		c.begin()
		a.await(c.name, fault(c.fault))
		c.end()
		a.await("after "+c.name, again)
	}
	// Another address to send from is used without a transition.
	if err := a.ns.Sysctl("net.ipv4.conf.eth0.promote_secondaries", "1"); err != nil {
		t.Fatal(err)
	}
	before := a.group().Counts.Left
	link.ip(a.ns, "address", "add", "10.20.0.99/24", "dev", "eth0")
	link.ip(a.ns, "address", "delete", "10.20.0.11/24", "dev", "eth0")
	a.await("the other source", func() bool { return a.group().Routers[0].Source == "10.20.0.99" })
	b.await("it is followed", func() bool { return b.group().Routers[0].Master == "10.20.0.99" })
	if got := a.group(); got.Counts.Left != before || !again() {
		t.Errorf("%+v", got)
	}
}

// Addresses that somebody removes come back; if that goes on, the group is in fault.
func TestRemovedAddresses(t *testing.T) { testenv.Patient(t, testRemovedAddresses) }

func testRemovedAddresses(t testing.TB) {
	link := newNetwork(t)
	a := newNode(t, link.host(1), web(150, virtual4)).start()
	group := web(0, virtual4)
	all := group.AllAddresses()
	a.await("master", func() bool { return a.is(vrrp.Master)() && has(t, a.ns, all...) == len(all) })
	announced := a.group().Counts.Announced
	link.ip(a.ns, "address", "delete", "10.20.0.2/32", "dev", "eth0")
	a.await("the address is back and announced", func() bool { return has(t, a.ns, all...) == len(all) && a.group().Counts.Announced > announced })
	if s := a.group(); s.State != vrrp.Master.String() || s.Counts.Left != 0 {
		t.Errorf("%+v", s)
	}
	removed := 0
	a.await("a fault, and no address", func() bool {
		if a.ns.Do(func() error { return run("ip", "address", "delete", "10.20.0.2/32", "dev", "eth0") }) == nil {
			removed++
		}
		return a.is(vrrp.Fault)() && has(t, a.ns, all...) == 0
	})
	if s := a.group(); !strings.Contains(s.Faults[0], "another program removes the addresses again and again: 10.20.0.2/32") || removed > 3*restoreLimit {
		t.Errorf("%d removals: %+v", removed, s)
	}
}

// Addresses that the host has itself stay when the group leaves; others of an earlier
// process go when one starts.
func TestOwnAddresses(t *testing.T) { testenv.Patient(t, testOwnAddresses) }

func testOwnAddresses(t testing.TB) {
	link := newNetwork(t)
	ns := link.host(1)
	link.ip(ns, "address", "add", gateway.Prefix.String(), "dev", gateway.Device)
	stale := vrrp.Address{Device: "eth0", Prefix: netip.MustParsePrefix("10.20.0.77/32")}
	if err := ns.Do(func() error {
		devices, err := host.Devices()
		if err != nil {
			return err
		}
		return host.AddMarked(devices[stale.Device], []netip.Prefix{stale.Prefix})
	}); err != nil || has(t, ns, stale) != 1 {
		t.Fatal(err)
	}
	a := newNode(t, ns, web(150, virtual4)).start()
	if has(t, ns, stale) != 0 {
		t.Error("a marked address of no group is still there")
	}
	group := web(0, virtual4)
	all := group.AllAddresses()
	a.await("master", func() bool { return a.is(vrrp.Master)() && has(t, ns, all...) == len(all) })
	a.stop()
	if got := has(t, ns, all...); got != 1 || has(t, ns, gateway) != 1 {
		t.Errorf("%d addresses are left", got)
	}
	a.start()
}

// Addresses that cannot be configured are a fault, and the other director takes over.
func TestAddressesRefused(t *testing.T) { testenv.Patient(t, testAddressesRefused) }

func testAddressesRefused(t testing.TB) {
	link := newNetwork(t)
	group := web(150, virtual4)
	group.Addresses = []vrrp.Address{{Device: "eth1", Prefix: netip.MustParsePrefix("2001:db8:5::1/64")}}
	ns := link.host(1)
	if err := ns.Sysctl("net.ipv6.conf.eth1.disable_ipv6", "1"); err != nil {
		t.Fatal(err)
	}
	other := link.host(2) // before a begins to wait for its next try
	a := newNode(t, ns, group).start()
	group.Priority = 100
	b := newNode(t, other, group).start()
	a.await("a fault", a.is(vrrp.Fault))
	if s := a.group(); len(s.Faults) != 1 || !strings.HasPrefix(s.Faults[0], "device eth1: add address 2001:db8:5::1/64: ") {
		t.Errorf("%+v", s.Faults)
	}
	b.await("the other one is master", b.is(vrrp.Master))
	g := web(0, virtual4)
	a.await("no address is left", func() bool { return has(t, ns, g.AllAddresses()...) == 0 })
}

// Scripts and devices change the priority, or are faults.
func TestTracking(t *testing.T) { testenv.Patient(t, testTracking) }

func testTracking(t testing.TB) {
	link := newNetwork(t)
	flag := filepath.Join(t.TempDir(), "down")
	script := func(name string, weight int) setup.Script {
		return setup.Script{
			Name: name, Command: []string{"/bin/sh", "-c", "test ! -e " + flag + "-" + name + " || { echo it is down; exit 1; }"},
			Interval: 20 * time.Millisecond, Timeout: 20 * time.Second, Rise: 2, Fall: 2, Weight: weight,
		}
	}
	set := func(name string, down bool) {
		t.Helper()
		var err error
		if down {
			err = os.WriteFile(flag+"-"+name, nil, 0o600)
		} else {
			err = os.Remove(flag + "-" + name)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	group := web(150, virtual4)
	group.Scripts = []string{"fault", "weight", "bonus"}
	group.Devices = []setup.Device{{Name: "eth9", Weight: 10}}
	a := newNode(t, link.host(1), group)
	a.wanted.Scripts = []setup.Script{script("bonus", 20), script("fault", 0), script("weight", -100)}
	a.start()
	b := newNode(t, link.host(2), web(100, virtual4)).start()
	priority := func(want uint8) func() bool { return func() bool { return a.group().Priority == want } }
	a.await("master", func() bool { return a.is(vrrp.Master)() && priority(170)() })
	link.leadNowhere(a.ns, "eth9")
	a.await("the device counts", priority(180))
	set("weight", true)
	b.await("a lower priority", b.is(vrrp.Master))
	a.await("its priority", func() bool { return priority(80)() && a.is(vrrp.Backup)() })
	set("weight", false)
	a.await("master again", a.is(vrrp.Master))
	set("fault", true)
	a.await("a fault", a.is(vrrp.Fault))
	if s := a.group(); len(s.Faults) != 1 || s.Faults[0] != "script fault: exit status 1: it is down" {
		t.Errorf("%+v", s.Faults)
	}
	set("fault", false)
	a.await("master once more", a.is(vrrp.Master))
	// A script that stays as it is keeps its verdict at a handover and a reload.
	a.vanish(true)
	a.start()
	if s := a.status(); s.Scripts[1].Verdict != "up" || len(s.Groups[0].Faults) > 0 {
		t.Errorf("%+v", s)
	}
}

// Notify commands get keepalived's arguments, in the order of the states.
func TestNotify(t *testing.T) { testenv.Patient(t, testNotify) }

func testNotify(t testing.TB) {
	link := newNetwork(t)
	file := filepath.Join(t.TempDir(), "calls")
	group := web(150, virtual4)
	group.Notify = []string{"/bin/sh", "-c", `echo "$@" $IMBANG_EVENT >> ` + file, "notify"}
	group.NotifyStates = map[vrrp.State][]string{vrrp.Master: {"/bin/sh", "-c", `echo "master $# $IMBANG_TEXT" >> ` + file, "master"}}
	second := group
	second.Name, second.Routers, second.Addresses = "two", []setup.Router{
		{Device: "eth0", ID: 7, Addresses: []netip.Prefix{netip.MustParsePrefix("10.20.0.7/24")}},
		{Device: "eth0", ID: 8, Addresses: []netip.Prefix{netip.MustParsePrefix("10.20.0.8/24")}},
	}, nil
	second.NotifyStates = nil
	ns := link.host(1)
	link.ip(ns, "link", "set", "eth0", "down")
	a := newNode(t, ns, group, second).start()
	link.ip(ns, "link", "set", "eth0", "up")
	a.await("master", func() bool { return a.is(vrrp.Master)() && a.status().Groups[1].State == vrrp.Master.String() })
	a.stop()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := func(group string) (all []string) {
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); strings.Contains(line, " "+group+" ") || group == "web" && strings.HasPrefix(line, "master ") {
				all = append(all, line)
			}
		}
		return all
	}
	if got, want := lines("web"), []string{
		"INSTANCE web FAULT 150 vrrp", "INSTANCE web BACKUP 150 vrrp", "master 0 master: silence", "INSTANCE web MASTER 150 vrrp", "INSTANCE web STOP 150 vrrp",
	}; !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	if got, want := lines("two"), []string{"GROUP two FAULT 150 vrrp", "GROUP two BACKUP 150 vrrp", "GROUP two MASTER 150 vrrp", "GROUP two STOP 150 vrrp"}; !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}
