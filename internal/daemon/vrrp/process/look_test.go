// SPDX-License-Identifier: Apache-2.0

package process

import (
	"slices"
	"testing"
	"time"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/host"
	"imbang/internal/testenv"
)

// A device that is renamed does not keep addresses of the group.
func TestRenamedDevice(t *testing.T) { testenv.Patient(t, testRenamedDevice) }

func testRenamedDevice(t testing.TB) {
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

// An address that is added while its device is removed is no failure of the group, and comes
// with the next device of the name.
func TestVanishedDevice(t *testing.T) { testenv.Patient(t, testVanishedDevice) }

func testVanishedDevice(t testing.TB) {
	link := newNetwork(t)
	if err := link.host(1).Do(func() error {
		l := quietLoop(t, now(), "web")
		if err := l.open(); err != nil {
			return err
		}
		defer l.close()
		var err error
		if l.devices, err = host.Devices(); err != nil {
			return err
		}
		l.looking = true // and it is not over before the end
		g := l.groups[0]
		g.call(func(m *vrrp.Machine, out *vrrp.Output) { m.Take(now(), out) })
		// The loop's devices are those of a moment ago.
		if err := run("ip", "link", "delete", "eth1"); err != nil {
			return err
		}
		l.settle(awaited)
		if _, is := g.known[gateway]; is || g.failed != "" || !l.lookAgain {
			t.Errorf("%t, %q", is, g.failed)
		}
		if err := run("ip", "link", "add", "eth1", "up", "type", "veth", "peer", "name", "end"); err != nil {
			return err
		}
		if err := run("ip", "link", "set", "end", "up"); err != nil {
			return err
		}
		for l.devices["eth1"] == nil || !l.devices["eth1"].Up { // its carrier comes later
			if l.devices, err = host.Devices(); err != nil {
				return err
			}
		}
		g.keepAddresses(now())
		l.settle(awaited)
		if !g.known[gateway] || g.failed != "" || g.announced == 0 {
			t.Errorf("%v, %q", g.known, g.failed)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// Devices that change all the time do not keep the worker from other things: it has as long
// for these as the last reading took, and no longer than a failure is waited for.
func TestLookPauses(t *testing.T) { testenv.Patient(t, testLookPauses) }

func testLookPauses(t testing.TB) {
	if err := newNetwork(t).host(1).Do(func() error {
		l := quietLoop(t, now(), "web")
		if err := l.open(); err != nil {
			return err
		}
		defer l.close()
		for took, pause := range map[time.Duration]time.Duration{90 * time.Millisecond: 90 * time.Millisecond, time.Minute: lookAgainAfter} {
			ended := now()
			l.looking, l.lookAt, l.reading = false, 0, reading{ended - took, ended}
			if l.look(); l.looking || l.lookAt != ended+pause {
				t.Errorf("after %v: reads %t, again after %v", took, l.looking, l.lookAt-ended)
			}
		}
		l.reading.ended = now() - time.Minute
		if l.look(); !l.looking {
			t.Error("it does not read")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
