// SPDX-License-Identifier: Apache-2.0

package process

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/testenv"
)

// quietLoop is a loop with machines of groups that have started to listen at a time.
func quietLoop(t testing.TB, at time.Duration, names ...string) *loop {
	t.Helper()
	l := &loop{Options: Options{Log: slog.New(slog.DiscardHandler)}, setup: &setup.Setup{}, ledger: ledger{known: map[vrrp.Address]bool{}}, sockets: map[spot]*opened{}}
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
func TestLongRound(t *testing.T) { testenv.Patient(t, testLongRound) }

func testLongRound(t testing.TB) {
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

// A timer that is late counts as late also if an advertisement is read before it is handled.
func TestLateBehindAnAdvertisement(t *testing.T) { testenv.Patient(t, testLateBehindAnAdvertisement) }

func testLateBehindAnAdvertisement(t testing.TB) {
	l := quietLoop(t, now(), "web")
	g := l.groups[0]
	g.next = now() - 200*time.Millisecond
	a := vrrp.Advertisement{ID: 51, Priority: 200, Interval: time.Second}
	g.call(func(m *vrrp.Machine, out *vrrp.Output) {
		m.Receive(now(), 0, netip.MustParseAddr("10.20.0.12"), &a, out)
	})
	if l.late < 200*time.Millisecond || l.late > time.Minute {
		t.Errorf("late by %v", l.late)
	}
}
