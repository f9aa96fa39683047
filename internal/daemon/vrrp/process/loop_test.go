// SPDX-License-Identifier: Apache-2.0

package process

import (
	"log/slog"
	"testing"
	"time"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
)

// quietLoop is a loop with machines of groups that have started to listen at a time.
func quietLoop(t *testing.T, at time.Duration, names ...string) *loop {
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
