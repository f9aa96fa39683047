// SPDX-License-Identifier: Apache-2.0

package process

import (
	"testing"
	"time"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/control"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/testenv"
)

// Without a data plane the kernel answers for the addresses as long as it has them. So the
// successor hears of a planned move, or of the end of the process, when they are gone, or
// after half an interval; with a data plane at once.
func TestResignationWaits(t *testing.T) {
	for name, c := range map[string]struct {
		guards, ends bool
		interval     time.Duration
		held         time.Duration // for which the kernel removes no address
		least, most  time.Duration
	}{
		"until they are gone":      {interval: 3 * time.Second, held: 200 * time.Millisecond, least: 190 * time.Millisecond, most: 1300 * time.Millisecond},
		"at the end":               {ends: true, interval: 3 * time.Second, held: 200 * time.Millisecond, least: 190 * time.Millisecond, most: 1300 * time.Millisecond},
		"half an interval at most": {interval: time.Second, held: 900 * time.Millisecond, least: 490 * time.Millisecond, most: 850 * time.Millisecond},
		"not with a data plane":    {guards: true, interval: time.Second, held: 300 * time.Millisecond, most: 250 * time.Millisecond},
	} {
		testenv.PatientRun(t, name, func(t testing.TB) {
			link := newNetwork(t)
			groupA, groupB := web(150, virtual4), web(100, virtual4)
			groupA.Pair, groupB.Pair = true, true
			a, b := newNode(t, link.host(1), groupA), newNode(t, link.host(2), groupB)
			var of planes
			if c.guards {
				of.set(newPlane())
				a.plane = of.open
			}
			a.start()
			a.await("master", a.is(vrrp.Master))
			b.start()
			b.await("it is followed", func() bool { return b.group().Counts.Received > 0 })
			a.configure(func(s *setup.Setup) { s.Groups[0].Interval = c.interval })
			since := b.group().Counts.Received
			b.await("the longer interval is announced", func() bool { return b.group().Counts.Received >= since+2 && b.is(vrrp.Backup)() })
			release := holdRTNL(t, a.ns, "lo")
			stalls := testenv.WatchStalls(t)
			began, free := time.Now(), make(chan struct{})
			go func() {
				defer close(free)
				time.Sleep(c.held)
				release()
			}()
			defer func() { <-free }()
			if c.ends {
				a.end()
				defer func() { <-a.done; a.end = nil }()
			} else {
				conn, err := control.Dial(t.Context(), control.Socket(a.dir))
				if err == nil {
					defer conn.Close()
					err = conn.Send(control.Message{GiveUp: &control.Groups{}})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			b.await("it takes over", b.is(vrrp.Master))
			if took := time.Since(began); took < c.least || took > c.most+stalls.Longest() {
				t.Errorf("the successor took over after %v, want %v to %v, beside stalls of %v", took, c.least, c.most, stalls.Longest())
			}
		})
	}
}
