// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"imbang/internal/daemon/place"
	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/host"
	"imbang/internal/testenv"
)

// rtnlPlane reads its devices as that of a director does: the kernel answers when RTNL is free.
type rtnlPlane struct{ Plane }

func (*rtnlPlane) Attached() ([]int, error) {
	_, err := host.Devices()
	return nil, err
}

// A handover advertises and keeps the leases while another program holds the kernel's RTNL
// lock, also with a director.
func TestHandoverWithPlaneAndRTNL(t *testing.T) { testenv.Patient(t, testHandoverWithPlaneAndRTNL) }

func testHandoverWithPlaneAndRTNL(t testing.TB) {
	link := newNetwork(t)
	group := slow(150)
	a := newNode(t, link.host(1), group)
	plane := newPlane()
	a.plane = func() (Plane, error) { return plane, nil }
	a.start()
	all := group.AllAddresses()
	a.await("master", func() bool { return a.is(vrrp.Master)() && has(t, a.ns, all...) == len(all) })
	a.vanish(true)
	ended := 0 // written by the loop before it is ready
	found := &rtnlPlane{&endingPlane{plane, func() { ended++ }}}
	a.plane = func() (Plane, error) { return found, nil }
	release := holdRTNL(t, a.ns, "lo")
	free := time.AfterFunc(awaited, release)
	a.start()
	if !free.Stop() {
		t.Error("the start has waited for the lock")
	}
	if s := a.group(); s.State != vrrp.Master.String() || s.Counts.Stalls > 0 {
		t.Errorf("%+v", s)
	}
	if ended > 0 {
		t.Error("the lease of a master ended")
	}
	release()
}

// The leases keep their numbers at a handover, and a configuration that cannot be used makes
// the next program read the file and go on as fast.
func TestHandoverSlots(t *testing.T) { testenv.Patient(t, testHandoverSlots) }

func testHandoverSlots(t testing.TB) {
	link := newNetwork(t)
	group, other := slow(150), slow(150)
	other.Name, other.Routers[0].ID, other.Routers[0].Addresses, other.Addresses = "mail", 53, []netip.Prefix{netip.MustParsePrefix("10.20.0.4/24")}, nil
	a := newNode(t, link.host(1), group, other)
	plane := newPlane()
	a.plane = func() (Plane, error) { return plane, nil }
	a.start()
	a.await("master", a.is(vrrp.Master))
	a.configure(func(s *setup.Setup) { s.Groups = s.Groups[1:] })
	a.await("master", a.is(vrrp.Master))
	slot := func() (slot uint32) {
		plane.has(func(f *fakePlane) bool { slot = f.groups[netip.MustParseAddr("10.20.0.4")]; return true })()
		return slot
	}
	was := slot()
	a.vanish(true)
	rewriteHandover(t, a.dir, func(h map[string]any) {
		h["Setup"].(map[string]any)["Groups"].([]any)[0].(map[string]any)["Interval"] = 1
	})
	release := holdRTNL(t, a.ns, "lo")
	free := time.AfterFunc(awaited, release)
	a.start()
	if !free.Stop() || a.group().State != vrrp.Master.String() {
		t.Errorf("the start has waited for the lock, or is not master: %+v", a.group())
	}
	if now := slot(); was == 0 || now != was || !plane.answers("10.20.0.4") {
		t.Errorf("number %d after %d", now, was)
	}
	release()
}

// rewriteHandover changes what a program has left.
func rewriteHandover(t testing.TB, dir string, change func(h map[string]any)) {
	t.Helper()
	h := map[string]any{}
	text, err := os.ReadFile(place.VRRPHandover(dir))
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		err = d.Decode(&h)
	}
	if err == nil {
		change(h)
		text, err = json.Marshal(h)
	}
	if err == nil {
		err = os.WriteFile(place.VRRPHandover(dir), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A program that cannot go on with what was handed over, at whatever it fails, resigns and
// leaves no addresses; what was handed over stays until it does go on, or resigned.
func TestHandoverFails(t *testing.T) {
	for _, name := range []string{"status.sock", "control.sock"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait for most of the time
			testenv.Patient(t, func(t testing.TB) { testHandoverFails(t, name) })
		})
	}
}

func testHandoverFails(t testing.TB, name string) {
	link := newNetwork(t)
	group := slow(150)
	a := newNode(t, link.host(1), group).start()
	b := newNode(t, link.host(2), slow(100)).start()
	all := group.AllAddresses()
	a.await("master", func() bool { return a.is(vrrp.Master)() && has(t, a.ns, all...) == len(all) })
	b.await("it is followed", func() bool { return b.group().Routers[0].Master != "" })
	a.vanish(true)
	if err := os.MkdirAll(filepath.Join(a.dir, name, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	kept, plane := false, newPlane()
	o := Options{
		Load: func() (*setup.Setup, error) { return &setup.Setup{}, nil }, Dir: a.dir, Log: logOf(a),
		OpenPlane: func() (Plane, error) {
			_, err := os.Stat(place.VRRPHandover(a.dir))
			kept = err == nil
			return plane, nil
		},
	}
	begin := time.Now()
	if err := a.ns.Do(func() error { return Run(t.Context(), o) }); err == nil || errors.Is(err, ErrReplaced) {
		t.Fatalf("%v", err)
	}
	if name == "control.sock" && !kept {
		t.Error("what was handed over is gone before it was used")
	}
	if _, err := os.Stat(place.VRRPHandover(a.dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if n := has(t, a.ns, all...); n != 0 {
		t.Errorf("%d addresses are left", n)
	}
	b.await("the other one is master", b.is(vrrp.Master))
	if g := b.group(); g.Cause != vrrp.CauseResigned.String() {
		t.Errorf("%+v after %s", g, time.Since(begin))
	}
}

// What was handed over is gone when the groups have started.
func TestHandoverFileEnds(t *testing.T) { testenv.Patient(t, testHandoverFileEnds) }

func testHandoverFileEnds(t testing.TB) {
	link := newNetwork(t)
	a := newNode(t, link.host(1), slow(150)).start()
	a.vanish(true)
	a.start()
	if _, err := os.Stat(place.VRRPHandover(a.dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
