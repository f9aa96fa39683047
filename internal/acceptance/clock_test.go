// SPDX-License-Identifier: Apache-2.0

//go:build measure

package acceptance

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Setting the machine's clock by an hour, forwards and backwards, changes nothing: checks
// go on at their interval, no server changes, and a drain's deadline is met neither earlier
// nor later.
// `make check-clock` runs it: it sets the clock of the whole machine for some seconds.
func TestRunClockJumps(t *testing.T) {
	k := newKeeper(t, 3, checkQuickly+threeServers)
	k.await("all servers", func() bool { return k.states() == "a up/1, b up/1, c up/1" })
	// Three in turn: one of the sessions is c's.
	var sessions []session
	for range 3 {
		s := openSession(t, k.Cluster)
		if err := s.get(); err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	answer := func() (n int) {
		for _, s := range sessions {
			if s.get() == nil {
				n++
			}
		}
		return n
	}
	const deadline = 30 * time.Second // within the second of three times 12 s
	drained := time.Now()
	k.do("drain", "c", "--deadline", deadline.String())
	jumped := time.Duration(0)
	jump := func(by time.Duration) {
		t.Helper()
		now := time.Now()
		at := unix.NsecToTimeval(now.Add(by).UnixNano())
		if err := unix.Settimeofday(&at); err != nil {
			t.Fatalf("set the clock: %v", err)
		}
		jumped += by
	}
	defer func() { jump(-jumped) }()
	events := k.do("events")
	for _, by := range []time.Duration{time.Hour, -2 * time.Hour, time.Hour} {
		before := k.status().Checks.Made
		jump(by)
		r := k.under(200, func() { time.Sleep(5 * time.Second) })
		if r.Loss.Total() != 0 {
			t.Errorf("after %s: lost %+v", by, r.Loss)
		}
		// Three servers each 200 ms for about 12 s.
		s := k.status()
		if made := s.Checks.Made - before; made < 150 || made > 210 {
			t.Errorf("after %s: %d checks in 12 s, want about 180", by, made)
		}
		if s.Checks.DelayP99MS > 50 {
			t.Errorf("after %s: checks start %.0f ms late", by, s.Checks.DelayP99MS)
		}
		if got := k.states(); got != "a up/1, b up/1, c drain/0" {
			t.Errorf("after %s: %s", by, got)
		}
		if len(s.Alarms)+len(s.Drift) > 0 {
			t.Errorf("after %s: alarms %v, drift %v", by, s.Alarms, s.Drift)
		}
		want := 3
		if time.Since(drained) > deadline {
			want = 2
		}
		if got := answer(); got != want {
			t.Errorf("after %s, %s of the drain: %d of 3 sessions go on, want %d", by, time.Since(drained), got, want)
		}
	}
	if got := k.do("events"); strings.TrimSpace(got) != strings.TrimSpace(events) {
		t.Errorf("events:\n%s\nbefore:\n%s", got, events)
	}
	k.do("audit")
}
