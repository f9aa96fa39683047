// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/daemon/place"
	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/testenv"
)

// A start that is refused, as the file cannot be read or sockets are not allowed, removes what an
// earlier process has left: addresses, and what the data plane does with their packets.
func TestStartRefused(t *testing.T) {
	wrong := errors.New("line 3: what is this")
	loads := func() (*setup.Setup, error) { return &setup.Setup{Groups: []setup.Group{web(150, virtual4)}}, nil }
	for name, c := range map[string]struct {
		load func() (*setup.Setup, error)
		run  func(o Options) error
		want error
	}{
		"file":    {func() (*setup.Setup, error) { return nil, wrong }, func(o Options) error { return Run(t.Context(), o) }, wrong},
		"sockets": {loads, func(o Options) error { return withoutRaw(t, func() error { return Run(t.Context(), o) }) }, unix.EPERM},
	} {
		testenv.PatientRun(t, name, func(t testing.TB) {
			link := newNetwork(t)
			ns := link.host(1)
			group := web(150, virtual4)
			all := group.AllAddresses()
			plane := newPlane()
			a := newNode(t, ns, group)
			a.plane = func() (Plane, error) { return plane, nil }
			a.wanted.Grace = time.Hour
			a.start()
			a.await("master", func() bool {
				return a.is(vrrp.Master)() && has(t, ns, all...) == len(all) && plane.answers("10.20.0.1")
			})
			a.vanish(false)
			own := netip.MustParsePrefix("10.20.0.200/32")
			link.ip(ns, "address", "add", own.String(), "dev", "eth0")
			if plane.has(func(f *fakePlane) bool { return f.released || len(f.groups) == 0 })() {
				t.Fatalf("a process that was killed releases nothing: %+v", plane)
			}
			o := Options{Load: c.load, Dir: a.dir, Log: logOf(a), OpenPlane: a.plane}
			if err := ns.Do(func() error { return c.run(o) }); !errors.Is(err, c.want) {
				t.Errorf("%v", err)
			}
			if n := has(t, ns, all...); n != 0 || has(t, ns, vrrp.Address{Device: "eth0", Prefix: own}) != 1 {
				t.Errorf("%d addresses are left", n)
			}
			if !plane.has(func(f *fakePlane) bool { return f.released })() {
				t.Errorf("the data plane goes on: %+v", plane)
			}
		})
	}
}

// withoutRaw calls f on a thread that may not open raw sockets.
func withoutRaw(t testing.TB, f func() error) error {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all, less [2]unix.CapUserData
	if err := unix.Capget(&header, &all[0]); err != nil {
		t.Fatal(err)
	}
	less = all
	less[0].Effective &^= 1 << unix.CAP_NET_RAW
	if err := unix.Capset(&header, &less[0]); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Capset(&header, &all[0]); err != nil {
			t.Error(err)
		}
	}()
	return f()
}

// There is one process in a network namespace, and none to ask otherwise.
func TestOneProcess(t *testing.T) { testenv.Patient(t, testOneProcess) }

func testOneProcess(t testing.TB) {
	link := newNetwork(t)
	a := newNode(t, link.host(1), web(150, virtual4)).start()
	o := Options{Load: func() (*setup.Setup, error) { return &a.wanted, nil }, Dir: a.dir, Log: logOf(a)}
	if err := Run(t.Context(), o); !errors.Is(err, place.ErrVRRPRunning) {
		t.Errorf("%v", err)
	}
	a.stop()
	if _, err := Ask(a.dir); !errors.Is(err, ErrNone) {
		t.Errorf("%v", err)
	}
	a.start()
}
