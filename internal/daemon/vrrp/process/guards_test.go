// SPDX-License-Identifier: Apache-2.0

package process

import (
	"net/netip"
	"testing"
	"time"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/testenv"
)

// Addresses that the host may still have are guarded, without a lease: those of a group that a
// reload removes, and all if the process ends before
// they are removed.
func TestGuardedUntilRemoved(t *testing.T) { testenv.Patient(t, testGuardedUntilRemoved) }

func testGuardedUntilRemoved(t testing.TB) {
	patience := stopPatience
	stopPatience = 200 * time.Millisecond
	defer func() { stopPatience = patience }()
	link := newNetwork(t)
	mail := slow(150)
	mail.Name, mail.Routers[0].ID, mail.Routers[0].Addresses, mail.Addresses = "mail", 53, []netip.Prefix{netip.MustParsePrefix("10.20.0.4/24")}, nil
	web := slow(150)
	a := newNode(t, link.host(1), mail, web)
	plane := newPlane()
	a.plane = func() (Plane, error) { return plane, nil }
	a.start()
	a.await("master", func() bool { return plane.answers("10.20.0.4") && plane.answers("10.20.0.1") })
	a.await("the addresses", func() bool { return has(t, a.ns, mail.AllAddresses()...) == 1 })
	release := holdRTNL(t, a.ns, "lo")
	more := mail
	more.Name, more.Routers = "more", []setup.Router{{Device: "eth0", ID: 54, Addresses: []netip.Prefix{netip.MustParsePrefix("10.20.0.5/24")}}}
	a.configure(func(s *setup.Setup) {
		s.Groups[0] = more
		s.Groups[1].Addresses = nil
	})
	if plane.answers("10.20.0.4") {
		t.Error("the host answers for the address of a group that is gone")
	}
	release()
	a.await("the new group has a lease", func() bool { return plane.answers("10.20.0.5") })
	a.await("the guards of the addresses end that are gone", plane.has(func(f *fakePlane) bool { return len(f.groups) == 3 }))
	if n := has(t, a.ns, mail.AllAddresses()[0], gateway); n != 0 || !plane.answers("10.20.0.1") {
		t.Errorf("%d addresses: %+v", n, plane)
	}
	a.await("the addresses", func() bool { return has(t, a.ns, more.AllAddresses()...) == 1 && a.is(vrrp.Master)() })

	release = holdRTNL(t, a.ns, "lo")
	a.stop()
	if plane.has(func(f *fakePlane) bool { return f.released })() || plane.answers("10.20.0.5") || plane.answers("10.20.0.1") {
		t.Errorf("the host answers, and may have the addresses: %+v", plane)
	}
	release()
}

// So are those that an earlier program could not remove.
func TestGuardsHandedOver(t *testing.T) { testenv.Patient(t, testGuardsHandedOver) }

func testGuardsHandedOver(t testing.TB) {
	l := quietLoop(t, now(), "web")
	plane := newPlane()
	l.plane = plane
	left := netip.MustParseAddr("10.20.0.9")
	l.recall(&handover{Groups: map[string]vrrp.Snapshot{"web": {}}, Guarded: map[netip.Addr]uint32{left: 0}})
	l.guard()
	if slot, is := plane.groups[left]; !is || slot != 0 || l.slots["web"] == 0 || !l.clean {
		t.Fatalf("%+v", plane)
	}
	l.applied(&change{cleaned: true})
	if _, is := plane.groups[left]; !is {
		t.Error("its guard ends while other addresses are to be removed")
	}
	l.clean = false
	l.applied(&change{cleaned: true})
	if _, is := plane.groups[left]; is || len(plane.groups) == 0 {
		t.Errorf("%+v", plane)
	}
}
