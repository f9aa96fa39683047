// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/config"
	"imbang/internal/daemon/events"
	"imbang/internal/host"
	"imbang/internal/testenv"
)

// An address that another machine on the link has is an alarm, and is added when that has
// removed it. One that nothing answers for is added at once.
func TestAddressOfAnotherMachineIsNotAdded(t *testing.T) {
	one, other := testenv.Namespace(t, "taken"), testenv.Namespace(t, "owner")
	if err := host.Connect(host.End{NS: one, Name: "eth0"}, host.End{NS: other, Name: "eth0"}, host.LinkOptions{}); err != nil {
		t.Fatal(err)
	}
	moving, own := netip.MustParsePrefix("192.0.2.80/32"), netip.MustParsePrefix("192.0.2.81/32")
	if err := other.AddAddresses("eth0", netip.MustParsePrefix("192.0.2.3/24"), moving); err != nil {
		t.Fatal(err)
	}
	// Until the kernel has made the link usable, questions are lost.
	for end, found := time.Now().Add(time.Minute), 0; found == 0; {
		if err := one.Do(func() error {
			all, err := host.Answered("eth0", []netip.Addr{netip.MustParseAddr("192.0.2.3")}, 10*time.Millisecond)
			found = len(all)
			return err
		}); err != nil || time.Now().After(end) {
			t.Fatal("the other machine does not answer ", err)
		}
	}
	log, err := events.Open(filepath.Join(t.TempDir(), "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	d := &Daemon{
		Options: Options{Log: slog.New(slog.DiscardHandler)}, events: log, alarms: map[string]api.Alarm{},
		configured: map[config.Address]bool{}, added: map[config.Address]bool{}, taken: map[config.Address]taken{},
	}
	c := &config.Director{Addresses: []config.Address{{Device: "eth0", Prefix: moving}, {Device: "eth0", Prefix: own}}}
	has := func(a netip.Prefix) (there bool) {
		t.Helper()
		if err := one.Do(func() (err error) { there, err = host.HasAddress("eth0", a.Addr()); return err }); err != nil {
			t.Fatal(err)
		}
		return there
	}
	keep := func() {
		t.Helper()
		if err := one.Do(func() error { d.keepAddresses(c); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	keep()
	text := d.alarms[alarmAddress].Text
	if has(moving) || !has(own) || !strings.HasPrefix(text, "192.0.2.80/32 is not added to eth0: the machine with hardware address ") {
		t.Fatalf("moving %v, own %v, alarm %q", has(moving), has(own), text)
	}
	before := maps.Clone(d.taken)
	keep()
	if diff := cmp.Diff(before, d.taken, cmp.AllowUnexported(taken{})); diff != "" || d.alarms[alarmAddress].Text != text {
		t.Errorf("asked again at once: %s, alarm %q", diff, d.alarms[alarmAddress].Text)
	}
	if err := other.Do(func() error { return host.DeleteAddress("eth0", moving) }); err != nil {
		t.Fatal(err)
	}
	for a, owner := range d.taken { // as if the time had passed
		d.taken[a] = taken{owner.by, owner.when.Add(-takenAgain)}
	}
	keep()
	if _, raised := d.alarms[alarmAddress]; !has(moving) || raised {
		t.Errorf("after the other removed it: there %v, alarms %+v", has(moving), d.alarms)
	}
}
