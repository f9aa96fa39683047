// SPDX-License-Identifier: Apache-2.0

package vrrp

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

const ms = time.Millisecond

// bench drives one machine.
type bench struct {
	t    *testing.T
	m    *Machine
	now  time.Duration
	out  Output
	log  []string // of all actions, short
	next time.Duration
}

func pairConfig(priority uint8) Config {
	return Config{
		Routers: []Router{
			{Device: "eth0", ID: 51, Source: netip.MustParseAddr("10.0.0.5"), Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.200/24")}},
			{Device: "eth1", ID: 52, Source: netip.MustParseAddr("fe80::5"), Addresses: []netip.Prefix{netip.MustParsePrefix("fe80::200/64")}},
		},
		Others:   []Address{{"eth1", netip.MustParsePrefix("192.168.0.1/24")}},
		Priority: priority,
		Interval: 100 * ms,
	}
}

func newBench(t *testing.T, c Config) *bench {
	m, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return &bench{t: t, m: m, now: time.Hour}
}

// started is one after its start, without what that says.
func started(t *testing.T, c Config) *bench {
	b := newBench(t, c)
	b.do(func() { b.m.Start(b.now, &b.out) })
	b.log = nil
	return b
}

// master is one after its takeover.
func master(t *testing.T, c Config) *bench {
	b := started(t, c)
	b.until(c.Hold + 500*ms)
	if b.m.State() != Master {
		t.Fatalf("it is %v", b.m.State())
	}
	b.log = nil
	return b
}

// do calls the machine, and notes what it says.
func (b *bench) do(f func()) {
	b.out.Reset()
	f()
	b.next = b.out.Next
	for _, a := range b.out.Actions {
		s := a.Kind.String()
		switch a.Kind {
		case ActionLease:
			s = fmt.Sprintf("lease %v", max(0, a.Until-b.now))
		case ActionAdvertise:
			s = fmt.Sprintf("advertise %d by %d", a.Advertisement.Priority, a.Router)
		case ActionTake, ActionRelease:
			s += fmt.Sprintf(" %d", len(a.Addresses))
		case ActionAnnounce:
			s += fmt.Sprintf(" %d of %d", a.Repeat, len(a.Addresses))
		case ActionNotify:
			s = fmt.Sprintf("%v: %v", a.State, a.Cause)
		case ActionMerge:
			s += " with " + a.Peer.String()
		case ActionReport:
			s = a.Event.String()
		}
		b.log = append(b.log, s)
	}
}

// until ticks for a time, as often as the machine asks for it.
func (b *bench) until(d time.Duration) {
	for end := b.now + d; ; {
		if b.next == 0 || b.next > end {
			b.now = end
			return
		}
		b.now = max(b.now, b.next)
		b.do(func() { b.m.Tick(b.now, &b.out) })
	}
}

// receive has an advertisement arrive by a router.
func (b *bench) receive(router int, from string, priority uint8) {
	a := Advertisement{ID: 51, Priority: priority, Interval: 100 * ms, Addresses: b.m.advertised[router]}
	b.do(func() { b.m.Receive(b.now, router, netip.MustParseAddr(from), &a, &b.out) })
}

// hear has a master for a time.
func (b *bench) hear(from string, priority uint8, d time.Duration) {
	for end := b.now + d; b.now < end; b.until(100 * ms) {
		b.receive(0, from, priority)
	}
}

// said checks what was said, and forgets it.
func (b *bench) said(want ...string) {
	b.t.Helper()
	if !slices.Equal(b.log, want) {
		b.t.Errorf("it said\n  %s\nwant\n  %s", strings.Join(b.log, "\n  "), strings.Join(want, "\n  "))
	}
	b.log = nil
}

func (b *bench) is(want State) {
	b.t.Helper()
	if got := b.m.State(); got != want {
		b.t.Errorf("it is %v, want %v", got, want)
	}
}

func TestStartReleasesAndListens(t *testing.T) {
	b := newBench(t, pairConfig(200))
	b.do(func() { b.m.Start(b.now, &b.out) })
	b.said("lease 0s", "release 3", "backup: start")
	// 3 x 100 ms and (256 - 200) / 256 x 100 ms.
	b.until(321 * ms)
	b.said()
	b.until(1 * ms)
	b.said("lease 300ms", "advertise 200 by 0", "advertise 200 by 1", "take 3", "announce 5 of 3", "master: silence")
	b.until(250 * ms)
	b.said("lease 300ms", "advertise 200 by 0", "advertise 200 by 1", "lease 300ms", "advertise 200 by 0", "advertise 200 by 1")
}

// The times of adverts do not drift if ticks are late.
func TestAdvertisementsDoNotDrift(t *testing.T) {
	b := master(t, pairConfig(200))
	start, sent := b.now, b.m.Counts().Sent
	for b.now < start+10*time.Second {
		b.now = b.next + 9*ms
		b.do(func() { b.m.Tick(b.now, &b.out) })
	}
	if n := (b.m.Counts().Sent - sent) / 2; n < 99 || n > 101 {
		t.Errorf("%d advertisements in 10 s", n)
	}
}

func TestAnnouncements(t *testing.T) {
	c := pairConfig(200)
	b := started(t, c)
	var at []string
	start := b.now
	for b.now < start+130*time.Second {
		b.until(50 * ms)
		for _, s := range b.log {
			if strings.HasPrefix(s, "announce") {
				at = append(at, fmt.Sprintf("%v %s", (b.now-start).Round(time.Second), s))
			}
		}
		b.log = nil
	}
	if want := []string{"0s announce 5 of 3", "5s announce 5 of 3", "1m5s announce 1 of 3", "2m5s announce 1 of 3"}; !slices.Equal(at, want) {
		t.Errorf("announced at %q, want %q", at, want)
	}
}

// A worse master is answered at once, but not more often than twice in an interval, and
// upon each of its appearances there are announcements: now, once it is gone, and 5 s later.
func TestOtherMaster(t *testing.T) {
	b := master(t, pairConfig(200))
	b.until(10 * time.Second)
	b.log = nil
	b.receive(0, "10.0.0.4", 100)
	b.said("another master", "lease 300ms", "advertise 200 by 0", "advertise 200 by 1", "announce 5 of 3")
	b.receive(1, "fe80::4", 100)
	b.said()
	b.until(60 * ms)
	b.receive(0, "10.0.0.4", 100)
	b.said("lease 300ms", "advertise 200 by 0", "advertise 200 by 1")
	b.until(299 * ms)
	b.log = nil
	b.until(1 * ms)
	if !slices.Contains(b.log, "the other master is gone") || !slices.Contains(b.log, "announce 5 of 3") {
		t.Errorf("said %q", b.log)
	}
	b.log = nil
	b.until(4900 * ms)
	if slices.Contains(b.log, "announce 5 of 3") {
		t.Error("announced too soon")
	}
	b.until(100 * ms)
	if !slices.Contains(b.log, "announce 5 of 3") {
		t.Error("not announced again")
	}
	if c := b.m.Counts(); c.OtherMasters != 1 || c.Asserted != 2 {
		t.Errorf("counts %+v", c)
	}
}

// One that goes on for long does not cause a flood.
func TestOtherMasterIsAnsweredAtARate(t *testing.T) {
	c := pairConfig(200)
	c.Interval = 10 * ms
	b := master(t, c)
	before := b.m.Counts()
	for range 10000 { // each ms, for 10 s
		b.receive(0, "10.0.0.4", 100)
		b.until(ms)
	}
	after := b.m.Counts()
	if n := after.Sent - before.Sent; n > 2*2*1001 {
		t.Errorf("%d advertisements in 10 s", n)
	}
	if n := after.Announced - before.Announced; n > 12 {
		t.Errorf("%d announcements in 10 s", n)
	}
}

func TestYields(t *testing.T) {
	b := master(t, pairConfig(100))
	b.receive(0, "10.0.0.4", 200)
	b.said("advertise 100 by 0", "advertise 100 by 1", "lease 0s", "release 3", "backup: better master")
	// It follows that master, reminds it twice, and takes over when it is silent.
	b.until(50 * ms)
	for range 3 {
		b.receive(0, "10.0.0.4", 200)
	}
	b.said("advertise 1 by 0", "advertise 1 by 1", "advertise 1 by 0", "advertise 1 by 1")
	b.until(360 * ms)
	b.said()
	b.until(1 * ms)
	b.is(Master)
}

// The master's interval counts (RFC 9568, 6.4.2 and 6.4.3).
func TestAdoptsInterval(t *testing.T) {
	b := started(t, pairConfig(128))
	a := Advertisement{ID: 51, Priority: 200, Interval: time.Second, Addresses: b.m.advertised[0]}
	b.do(func() { b.m.Receive(b.now, 0, netip.MustParseAddr("10.0.0.4"), &a, &b.out) })
	b.until(3499 * ms)
	b.is(Backup)
	b.until(ms)
	b.is(Master)
	b.log = nil
	b.until(100 * ms) // its own now
	b.said("lease 300ms", "advertise 128 by 0", "advertise 128 by 1")
}

func TestMerge(t *testing.T) {
	c := pairConfig(100)
	c.Merge = time.Second
	yielding := func() *bench {
		b := master(t, c)
		b.receive(0, "10.0.0.4", 200)
		b.said("advertise 100 by 0", "advertise 100 by 1", "merge with 10.0.0.4")
		return b
	}
	t.Run("merged", func(t *testing.T) {
		b := yielding()
		b.until(50 * ms)
		b.receive(0, "10.0.0.4", 200)
		if !b.m.Merging() {
			t.Error("not merging")
		}
		b.log = nil
		b.do(func() { b.m.Merged(b.now, &b.out) })
		b.said("lease 0s", "release 3", "backup: merged")
		b.do(func() { b.m.Merged(b.now, &b.out) })
		b.said()
	})
	t.Run("bound", func(t *testing.T) {
		b := yielding()
		b.hear("10.0.0.4", 200, 900*ms)
		b.until(99 * ms)
		b.is(Master)
		b.log = nil
		b.until(ms)
		b.is(Backup)
		if c := b.m.Counts(); c.MergeBounds != 1 {
			t.Errorf("counts %+v", c)
		}
	})
	t.Run("bound, and it was silent", func(t *testing.T) {
		b := yielding()
		b.hear("10.0.0.4", 200, 700*ms)
		b.receive(0, "10.0.0.4", 200)
		b.until(300 * ms)
		b.is(Backup)
		b.until(60 * ms) // 3 intervals and 61 ms after the last advertisement
		b.is(Backup)
		b.until(ms)
		b.is(Master)
	})
	t.Run("it falls silent", func(t *testing.T) {
		b := yielding()
		b.until(370 * ms)
		b.is(Master)
		if b.m.Merging() || !slices.Contains(b.log, "merge aborted") || !slices.Contains(b.log, "announce 5 of 3") {
			t.Errorf("said %q", b.log)
		}
		b.until(2 * time.Second)
		b.is(Master)
	})
	t.Run("it resigns", func(t *testing.T) {
		b := yielding()
		b.receive(0, "10.0.0.4", 0)
		if b.m.Merging() || !slices.Contains(b.log, "merge aborted") {
			t.Errorf("said %q", b.log)
		}
		b.receive(0, "10.0.0.4", 200) // sent before it resigned
		b.until(2 * time.Second)
		b.is(Master)
	})
	t.Run("it becomes worse", func(t *testing.T) {
		b := yielding()
		b.receive(0, "10.0.0.4", 50)
		if b.m.Merging() {
			t.Error("still merging")
		}
	})
}

func TestTieByAddress(t *testing.T) {
	for from, want := range map[string]State{"10.0.0.4": Master, "10.0.0.6": Backup, "9.0.0.255": Master} {
		b := master(t, pairConfig(100))
		b.receive(0, from, 100)
		b.is(want)
	}
}

// The addresses are in another order on the second device. Both directors decide by the
// first one, in whatever order the advertisements come.
func TestTieWithTwoRouters(t *testing.T) {
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		directors := [2]*bench{}
		sources := [2][2]string{{"10.0.0.5", "fe80::5"}, {"10.0.0.6", "fe80::4"}}
		for i := range directors {
			c := pairConfig(100)
			for r := range c.Routers {
				c.Routers[r].Source = netip.MustParseAddr(sources[i][r])
			}
			directors[i] = master(t, c)
		}
		masters := 0
		for range 20 { // intervals
			var sent [2]bool
			for i, b := range directors {
				sent[i] = b.m.State() == Master
			}
			for i, b := range directors {
				for _, r := range order {
					if sent[1-i] {
						b.receive(r, sources[1-i][r], 100)
					}
				}
			}
			masters = 0
			for _, b := range directors {
				b.until(100 * ms)
				if b.m.State() == Master {
					masters++
				}
			}
		}
		if masters != 1 || directors[1].m.State() != Master {
			t.Errorf("order %v: %d masters, the one with the higher address is %v", order, masters, directors[1].m.State())
		}
		for i, b := range directors {
			if n := b.m.Counts().Left; n > 2 {
				t.Errorf("order %v: director %d left %d times", order, i, n)
			}
		}
	}
}

func TestResigned(t *testing.T) {
	b := started(t, pairConfig(128))
	b.hear("10.0.0.4", 200, 500*ms)
	b.log = nil
	b.receive(0, "10.0.0.7", 0) // of another one
	b.until(60 * ms)
	b.said()
	b.receive(0, "10.0.0.4", 200)
	b.receive(0, "10.0.0.4", 0)
	b.receive(0, "10.0.0.4", 200) // late
	b.until(49 * ms)
	b.said()
	b.until(ms)
	b.said("lease 300ms", "advertise 128 by 0", "advertise 128 by 1", "take 3", "announce 5 of 3", "master: master resigned")
	b.receive(0, "10.0.0.4", 0) // late, too
	b.said()
	b.receive(0, "10.0.0.7", 0)
	if !slices.Contains(b.log, "another master") || !slices.Contains(b.log, "advertise 128 by 0") {
		t.Errorf("a resignation to a master: said %q", b.log)
	}
}

func TestPreemption(t *testing.T) {
	config := func(edit func(c *Config)) Config {
		c := pairConfig(200)
		edit(&c)
		return c
	}
	// after is when a director that starts beside a master of priority 100 is master.
	after := func(t *testing.T, c Config, during func(b *bench, d time.Duration)) time.Duration {
		b := started(t, c)
		for d := time.Duration(0); d < 5*time.Second; d += 100 * ms {
			if during != nil {
				during(b, d)
			}
			b.receive(0, "10.0.0.4", 100)
			b.until(100 * ms)
			if b.m.State() == Master {
				if during == nil && b.log[len(b.log)-1] != "master: preemption" {
					t.Errorf("it says %q", b.log)
				}
				return d + 100*ms
			}
		}
		return 0
	}
	for name, c := range map[string]struct {
		config Config
		during func(b *bench, d time.Duration)
		want   time.Duration
	}{
		"preempts":      {config(func(*Config) {}), nil, 400 * ms},
		"no preemption": {config(func(c *Config) { c.NoPreempt = true }), nil, 0},
		"owner":         {config(func(c *Config) { c.NoPreempt, c.Priority = true, 255 }), nil, 400 * ms},
		"delay":         {config(func(c *Config) { c.PreemptDelay = time.Second }), nil, 1300 * ms},
		"hold":          {config(func(c *Config) { c.Hold = 2 * time.Second }), nil, 2300 * ms},
		"not in sync":   {config(func(c *Config) { c.AwaitSync = true }), nil, 0},
		"not ready": {config(func(c *Config) { c.NoPreempt, c.Priority = true, 255 }), func(b *bench, d time.Duration) {
			b.do(func() { b.m.SetReady(b.now, false, &b.out) })
		}, 0},
		"not ready any more": {config(func(*Config) {}), func(b *bench, d time.Duration) {
			if d == 300*ms && !b.m.Preempting() {
				t.Error("it was about to preempt")
			}
			b.do(func() { b.m.SetReady(b.now, d < 300*ms || d >= 2*time.Second, &b.out) })
		}, 2300 * ms},
		"not ready, and the master is dead": {config(func(*Config) {}), func(b *bench, d time.Duration) {
			b.do(func() { b.m.SetReady(b.now, false, &b.out) })
			b.until(time.Second)
		}, 100 * ms},
		"in sync": {config(func(c *Config) { c.AwaitSync = true }), func(b *bench, d time.Duration) {
			if d == time.Second {
				b.do(func() { b.m.SetSynchronized(b.now, true, &b.out) })
			}
		}, 1300 * ms},
		"out of sync again": {config(func(c *Config) { c.AwaitSync = true }), func(b *bench, d time.Duration) {
			if d == time.Second || d == 1200*ms {
				b.do(func() { b.m.SetSynchronized(b.now, d == time.Second, &b.out) })
			}
		}, 0},
		"raised": {config(func(c *Config) { c.Priority = 50 }), func(b *bench, d time.Duration) {
			if d == time.Second {
				b.do(func() { b.m.SetPriority(b.now, 200, &b.out) })
			}
		}, 1300 * ms},
		"raised, and not for long": {config(func(c *Config) { c.Priority = 50 }), func(b *bench, d time.Duration) {
			if d == time.Second || d == 1200*ms {
				b.do(func() { b.m.SetPriority(b.now, map[bool]uint8{true: 200, false: 50}[d == time.Second], &b.out) })
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := after(t, c.config, c.during); got != c.want {
				t.Errorf("master after %v, want %v", got, c.want)
			}
		})
	}
}

// A priority that falls just before the deadline leaves the master the time that it has.
func TestPriorityFallsBeforeTheDeadline(t *testing.T) {
	b := started(t, pairConfig(50))
	b.hear("10.0.0.4", 100, time.Second) // the last one 100 ms ago
	b.do(func() { b.m.SetPriority(b.now, 200, &b.out) })
	b.hear("10.0.0.4", 100, 200*ms)
	b.receive(0, "10.0.0.4", 100)
	b.until(70 * ms)
	b.do(func() { b.m.SetPriority(b.now, 50, &b.out) })
	b.until(300*ms - 70*ms)
	b.is(Backup)
	b.until(100 * ms)
	b.is(Master)
}

// A reminder is no sign of a master.
func TestBackupsIgnoreReminders(t *testing.T) {
	c := pairConfig(128)
	c.NoPreempt = true
	b := started(t, c)
	for range 4 {
		b.receive(0, "10.0.0.4", 1)
		b.until(100 * ms)
	}
	b.is(Master)
}

// Without preemption a master stays whose priority is lower, but not one whose priority fell.
func TestFallenMasterIsPreempted(t *testing.T) {
	c := pairConfig(150)
	c.NoPreempt = true
	b := started(t, c)
	b.hear("10.0.0.4", 100, time.Second)
	b.hear("10.0.0.4", 120, time.Second)
	b.hear("10.0.0.4", 100, time.Second)
	b.is(Backup)
	b.hear("10.0.0.4", 200, time.Second)
	b.is(Backup)
	b.hear("10.0.0.4", 100, time.Second)
	b.is(Master)
}

func TestStallOfAMaster(t *testing.T) {
	b := master(t, pairConfig(200))
	b.now = b.m.memory.Lease - ms
	b.do(func() { b.m.Tick(b.now, &b.out) })
	b.is(Master)
	b.log = nil
	b.now += 300 * ms
	b.do(func() { b.m.Tick(b.now, &b.out) })
	b.said("lease 0s", "release 3", "backup: stalled", "stalled")
	b.until(321 * ms)
	b.is(Backup)
	b.until(ms)
	b.is(Master)
}

func TestStallOfABackup(t *testing.T) {
	c := pairConfig(200)
	c.AwaitSync = true
	b := started(t, c)
	b.do(func() { b.m.SetSynchronized(b.now, true, &b.out) })
	b.now += 301 * ms
	b.do(func() { b.m.Tick(b.now, &b.out) })
	b.said("stalled")
	if b.m.memory.Synchronized {
		t.Error("it is still synchronized")
	}
	b.until(321 * ms)
	b.is(Backup)
	b.until(ms)
	b.is(Master)
}

// What was in the socket during a pause of the process counts.
func TestPauseWithAdvertisementsInTheSocket(t *testing.T) {
	b := started(t, pairConfig(200))
	b.hear("10.0.0.4", 201, time.Second)
	b.now += 250 * ms
	b.receive(0, "10.0.0.4", 201)
	b.do(func() { b.m.Tick(b.now, &b.out) })
	b.until(320 * ms)
	b.is(Backup)
}

func TestStalledIsSaid(t *testing.T) {
	b := master(t, pairConfig(200))
	b.do(func() { b.m.Stalled(b.now, &b.out) })
	b.said("lease 0s", "release 3", "backup: stalled", "stalled")
}

func TestFault(t *testing.T) {
	b := master(t, pairConfig(200))
	b.do(func() { b.m.SetFault(b.now, true, &b.out) })
	b.said("lease 0s", "advertise 0 by 0", "advertise 0 by 1", "release 3", "fault: fault")
	if b.next != 0 {
		t.Error("it asks for a tick")
	}
	b.until(time.Second)
	b.receive(0, "10.0.0.4", 100)
	if b.do(func() { b.m.Take(b.now, &b.out) }); b.m.State() != Fault {
		t.Error("it took the addresses")
	}
	b.said()
	b.do(func() { b.m.SetFault(b.now, false, &b.out) })
	b.said("backup: fault gone")
	b.until(321 * ms)
	b.said()
	b.until(ms)
	b.is(Master)
}

func TestFaultBeforeStart(t *testing.T) {
	b := newBench(t, pairConfig(200))
	b.do(func() { b.m.SetFault(b.now, true, &b.out) })
	b.do(func() { b.m.Start(b.now, &b.out) })
	b.said("lease 0s", "release 3", "fault: fault")
}

func TestShutdown(t *testing.T) {
	b := master(t, pairConfig(200))
	b.do(func() { b.m.Shutdown(b.now, &b.out) })
	b.said("lease 0s", "advertise 0 by 0", "advertise 0 by 1", "release 3", "initialize: shutdown")
	b = started(t, pairConfig(200))
	b.do(func() { b.m.Shutdown(b.now, &b.out) })
	b.said("initialize: shutdown")
	b.until(time.Second)
	b.receive(0, "10.0.0.4", 0)
	b.said()
}

func TestPlannedMove(t *testing.T) {
	old, successor := master(t, pairConfig(200)), started(t, pairConfig(100))
	successor.hear("10.0.0.4", 200, time.Second)
	successor.log = nil
	old.do(func() {
		if !old.m.GiveUp(old.now, &old.out) {
			t.Error("it was not master")
		}
	})
	old.said("lease 0s", "advertise 0 by 0", "advertise 0 by 1", "release 3", "backup: gave up")
	successor.do(func() {
		if !successor.m.Take(successor.now, &successor.out) {
			t.Error("it did not take the addresses")
		}
	})
	successor.said("lease 300ms", "advertise 100 by 0", "advertise 100 by 1", "take 3", "announce 5 of 3", "master: take")
	successor.receive(0, "10.0.0.4", 200) // sent before it gave up
	successor.is(Master)
	successor.receive(0, "10.0.0.4", 0) // its resignation, which was the reason to take
	if n := successor.m.Counts().OtherMasters; n != 0 {
		t.Errorf("%d other masters", n)
	}
	// The old master does not preempt, until it may again.
	old.hear("10.0.0.6", 100, 2*time.Second)
	old.is(Backup)
	old.m.Reclaim()
	old.hear("10.0.0.6", 100, time.Second)
	old.is(Master)
	old.do(func() {
		if old.m.Take(old.now, &old.out) {
			t.Error("a master took the addresses")
		}
	})
}

// The addresses are moved there and straight back: the advertisement of the master that left
// an interval before or less, and is master again, is not taken for a late one.
func TestPlannedMoveBack(t *testing.T) {
	c := pairConfig(100)
	c.Pair = true
	b := started(t, c)
	b.hear("10.0.0.4", 200, time.Second)
	b.do(func() { b.m.Take(b.now, &b.out) })
	b.now += 20 * ms
	b.do(func() { b.m.GiveUp(b.now, &b.out) })
	b.receive(0, "10.0.0.4", 200)
	b.until(300 * ms)
	b.is(Backup)
	b.until(100 * ms)
	b.is(Master)
}

// A director that was master itself does not take the resignation of a third one for that of
// another than the master that it followed before.
func TestResignationAfterOwnMastership(t *testing.T) {
	b := started(t, pairConfig(200))
	b.hear("10.0.0.4", 210, time.Second)
	b.until(500 * ms)
	b.is(Master)
	b.do(func() { b.m.SetFault(b.now, true, &b.out) })
	b.do(func() { b.m.SetFault(b.now, false, &b.out) })
	b.receive(0, "10.0.0.6", 0)
	b.until(50 * ms) // the skew is 22 ms
	b.is(Master)
}

// If no director takes over, the one that gave up does.
func TestGiveUpAlone(t *testing.T) {
	b := master(t, pairConfig(200))
	b.do(func() { b.m.GiveUp(b.now, &b.out) })
	b.until(400 * ms)
	b.is(Master)
	if b.m.memory.GaveUp {
		t.Error("it would not preempt later")
	}
	b = started(t, pairConfig(200))
	if b.m.GiveUp(b.now, &b.out) {
		t.Error("a backup gave up")
	}
}

func TestPriorityOfAMasterIsToldAtOnce(t *testing.T) {
	b := master(t, pairConfig(200))
	b.do(func() { b.m.SetPriority(b.now, 0, &b.out) })
	b.said("lease 300ms", "advertise 2 by 0", "advertise 2 by 1")
	b.do(func() { b.m.SetPriority(b.now, 2, &b.out) })
	b.said()
}

func TestOwnAdvertisement(t *testing.T) {
	b := master(t, pairConfig(200))
	b.receive(0, "10.0.0.5", 255)
	b.receive(0, "10.0.0.5", 255)
	b.said("advertisement from the own address")
	b.is(Master)
}

func TestAddressesDiffer(t *testing.T) {
	b := started(t, pairConfig(100))
	for _, list := range [][]string{{"10.0.0.200"}, {"10.0.0.201"}, {"10.0.0.200", "10.0.0.201"}, {"10.0.0.200"}} {
		a := advertisement(51, 200, 100*ms, list...)
		b.do(func() { b.m.Receive(b.now, 0, netip.MustParseAddr("10.0.0.4"), &a, &b.out) })
	}
	want := []string{"addresses differ", "addresses agree"}
	if got := slices.DeleteFunc(b.log, func(s string) bool { return strings.HasPrefix(s, "advertise ") }); !slices.Equal(got, want) {
		t.Errorf("said %q, want %q", got, want)
	}
}

// The steady states need no memory: the process can do without garbage collections.
func TestSteadyStatesDoNotAllocate(t *testing.T) {
	b := master(t, pairConfig(200))
	if n := testing.AllocsPerRun(1000, func() {
		b.now += 100 * ms
		b.out.Reset()
		b.m.Tick(b.now, &b.out)
	}); n != 0 {
		t.Errorf("a tick of a master: %v allocations", n)
	}
	b.is(Master)
	b = started(t, pairConfig(200))
	from, a := netip.MustParseAddr("10.0.0.4"), Advertisement{ID: 51, Priority: 250, Interval: 100 * ms, Addresses: b.m.advertised[0]}
	if n := testing.AllocsPerRun(1000, func() {
		b.now += 100 * ms
		b.out.Reset()
		b.m.Receive(b.now, 0, from, &a, &b.out)
		b.m.Tick(b.now, &b.out)
	}); n != 0 {
		t.Errorf("an advertisement to a backup: %v allocations", n)
	}
	b.is(Backup)
}

func TestJitterKeepsTheOrderOfPriorities(t *testing.T) {
	random := uint64(0)
	c := pairConfig(100)
	c.Random = func() uint64 { return random }
	b := started(t, c)
	least := b.m.skew()
	random = ^uint64(0) - ^uint64(0)%uint64(b.m.step()) - 1 // the greatest remainder
	most := b.m.skew()
	b.m.memory.Priority--
	random = 0
	if worse := b.m.skew(); !(least < most && most <= worse) {
		t.Errorf("skews %v to %v, one step below %v", least, most, worse)
	}
}

func TestReloadOfAMaster(t *testing.T) {
	b := master(t, pairConfig(200))
	c := pairConfig(201)
	c.Others = []Address{{"eth1", netip.MustParsePrefix("192.168.7.1/24")}}
	c.Routers[0].Addresses = append(c.Routers[0].Addresses, netip.MustParsePrefix("10.0.0.201/24"))
	b.do(func() {
		if err := b.m.Reconfigure(b.now, c, &b.out); err != nil {
			t.Error(err)
		}
	})
	b.said("lease 300ms", "advertise 201 by 0", "advertise 201 by 1", "release 1", "take 2", "announce 5 of 2")
	c.Routers = c.Routers[:1]
	b.do(func() {
		if err := b.m.Reconfigure(b.now, c, &b.out); err != nil {
			t.Error(err)
		}
	})
	b.said("lease 300ms", "advertise 201 by 0", "release 1")
	before := b.m.Snapshot()
	c.Priority = 0
	if err := b.m.Reconfigure(b.now, c, &b.out); err == nil || !reflect.DeepEqual(before, b.m.Snapshot()) {
		t.Errorf("a wrong configuration: %v", err)
	}
	b.is(Master)
}

// A backup that still expects the shorter interval does not take over when the master's
// becomes longer, even if three advertisements that tell of it are lost.
func TestReloadToALongerInterval(t *testing.T) {
	b := master(t, pairConfig(200))
	c := pairConfig(200)
	c.Interval = time.Second
	b.do(func() { b.m.Reconfigure(b.now, c, &b.out) }) //nolint:errcheck // valid
	start := b.now
	var at []time.Duration
	note := func() {
		for _, a := range b.out.Actions {
			if a.Kind == ActionAdvertise && a.Router == 0 {
				at = append(at, (b.now - start).Round(ms))
				if a.Advertisement.Interval != time.Second {
					t.Errorf("it advertises an interval of %v", a.Advertisement.Interval)
				}
			}
		}
	}
	note()
	for b.now < start+3*time.Second {
		b.now = b.next
		b.do(func() { b.m.Tick(b.now, &b.out) })
		note()
	}
	want := []time.Duration{0, 100 * ms, 200 * ms, 300 * ms, 400 * ms, 1400 * ms, 2400 * ms, 3400 * ms}
	if !slices.Equal(at, want) {
		t.Errorf("advertised at %v, want %v", at, want)
	}
	b.is(Master)
}

// Before a pause a master announces a longer interval at the pace of its own, and has the
// addresses for three of it. Its successor goes on within that time, and with its own interval.
func TestBridge(t *testing.T) {
	advertised := func(b *bench, want time.Duration) {
		t.Helper()
		for _, a := range b.out.Actions {
			if a.Kind == ActionAdvertise && a.Advertisement.Interval != want {
				t.Errorf("it advertises an interval of %v, want %v", a.Advertisement.Interval, want)
			}
		}
	}
	for pause, state := range map[time.Duration]State{2900 * ms: Master, 3100 * ms: Backup} {
		b := master(t, pairConfig(200))
		start, ready := b.now, false
		for !ready {
			b.do(func() { ready = b.m.Bridge(b.now, time.Second, &b.out) })
			advertised(b, time.Second)
			if !ready {
				b.now = b.next
				b.do(func() { b.m.Tick(b.now, &b.out) })
				advertised(b, time.Second)
			}
		}
		if took := b.now - start; took != slowSteps*100*ms {
			t.Errorf("ready after %v", took)
		}
		if lease := b.m.memory.Lease - b.now; lease != 3*time.Second {
			t.Errorf("the lease lasts %v", lease)
		}
		b.now += pause
		s := b.m.Snapshot()
		b.do(func() { b.m, _ = Restore(b.now, pairConfig(200), s, &b.out) })
		b.is(state)
		advertised(b, 100*ms)
		b.until(time.Second)
		advertised(b, 100*ms)
	}

	// It ends without a successor, and with the master.
	b := master(t, pairConfig(200))
	b.do(func() { b.m.Bridge(b.now, time.Second, &b.out) })
	b.do(func() {
		if !b.m.Bridge(b.now, 0, &b.out) {
			t.Error("the own interval has to be awaited")
		}
	})
	advertised(b, 100*ms)
	b.do(func() { b.m.Bridge(b.now, time.Second, &b.out) })
	b.do(func() { b.m.GiveUp(b.now, &b.out) })
	advertised(b, 100*ms)
	b.do(func() {
		if !b.m.Bridge(b.now, time.Second, &b.out) {
			t.Error("a backup has to wait")
		}
	})
	if b.m.memory.Bridge != 0 {
		t.Error("a backup has a bridge")
	}
}

// A process goes on where another one was: no transition, no action but a reload's.
func TestSnapshot(t *testing.T) {
	for name, b := range map[string]*bench{"master": master(t, pairConfig(200)), "backup": started(t, pairConfig(200))} {
		if name == "backup" {
			b.hear("10.0.0.4", 210, time.Second)
		}
		text, err := json.Marshal(b.m.Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		var s Snapshot
		if err := json.Unmarshal(text, &s); err != nil {
			t.Fatal(err)
		}
		if want := b.m.Snapshot(); !reflect.DeepEqual(s, want) {
			t.Errorf("%s: %+v by way of JSON, want %+v", name, s, want)
		}
		b.now += 20 * ms
		b.log = nil
		b.do(func() { b.m, err = Restore(b.now, pairConfig(200), s, &b.out) })
		if err != nil {
			t.Fatal(err)
		}
		if b.m.State() != s.State {
			t.Errorf("%s: it is %v", name, b.m.State())
		}
		if name == "backup" {
			b.said()
			b.until(180 * ms)
			b.is(Backup)
		} else {
			b.said("lease 300ms", "advertise 200 by 0", "advertise 200 by 1")
		}
		b.now += time.Second // too late
		b.log = nil
		s = b.m.Snapshot()
		b.do(func() { b.m, err = Restore(b.now, pairConfig(200), s, &b.out) })
		if err != nil || b.m.State() != Backup {
			t.Errorf("%s, late: %v, %v", name, b.m.State(), err)
		}
	}
	later := Snapshot{State: Backup, Priority: 1, MasterInterval: time.Second, Seen: time.Hour + 1, Deadline: 2 * time.Hour}
	for _, s := range []Snapshot{{}, {State: 9, Priority: 1, MasterInterval: time.Second}, {State: Master, Priority: 1, MasterInterval: time.Second}, later} {
		if m, err := Restore(time.Hour, pairConfig(200), s, &Output{}); err == nil || m != nil {
			t.Errorf("%+v was restored", s)
		}
	}
}

func TestConfigRefuses(t *testing.T) {
	for want, edit := range map[string]func(c *Config){
		"interval of 15ms":   func(c *Config) { c.Interval = 15 * ms },
		"interval of 5ms":    func(c *Config) { c.Interval = 5 * ms },
		"priority":           func(c *Config) { c.Priority = 0 },
		"without a virtual":  func(c *Config) { c.Routers = nil },
		"identifier":         func(c *Config) { c.Routers[0].ID = 0 },
		"sends from invalid": func(c *Config) { c.Routers[0].Source = netip.Addr{} },
		"0 addresses":        func(c *Config) { c.Routers[0].Addresses = nil },
		"family":             func(c *Config) { c.Routers[0].Addresses = c.Routers[1].Addresses },
		"is there twice":     func(c *Config) { c.Routers = append(c.Routers, c.Routers[0]) },
		"twice":              func(c *Config) { c.Others = append(c.Others, c.Others[0]) },
		"a time of -1s":      func(c *Config) { c.Merge = -time.Second },
		"announcements":      func(c *Config) { c.Announcements = -1 },
		"invalid Prefix":     func(c *Config) { c.Others[0].Prefix = netip.Prefix{} },
	} {
		c := pairConfig(100)
		edit(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	c := pairConfig(1)
	c.Interval = 0
	m, err := New(c)
	if err != nil || m.config.Interval != time.Second || m.config.Announcements != 5 || m.memory.Priority != 2 {
		t.Errorf("defaults: %v, %+v", err, m)
	}
}

func TestNames(t *testing.T) {
	for s, want := range map[State]string{Initialize: "STOP", Fault: "FAULT", Backup: "BACKUP", Master: "MASTER"} {
		if s.Keepalived() != want || s.String() == "" {
			t.Errorf("%v is %s", s, s.Keepalived())
		}
	}
	if CauseShutdown.String() != "shutdown" || ActionReport.String() != "report" || EventMergeAborted.String() != "merge aborted" {
		t.Error("names are out of order")
	}
}

// A planned move whose resignation is lost does not leave the addresses without a master: it
// is repeated until another master is heard, and the only two directors are soon masters again.
func TestGiveUpIsRepeated(t *testing.T) {
	resignations := func(b *bench) (n int) {
		for _, line := range b.log {
			if strings.HasPrefix(line, "advertise 0 by 0") {
				n++
			}
		}
		b.log = nil
		return n
	}
	b := master(t, pairConfig(200))
	b.log = nil
	b.do(func() { b.m.GiveUp(b.now, &b.out) })
	b.until(35 * ms)
	if n := resignations(b); n != 1+repeats {
		t.Errorf("%d resignations", n)
	}
	b.until(100 * ms)
	if n := resignations(b); n != 0 {
		t.Errorf("%d more resignations", n)
	}
	b = master(t, pairConfig(200))
	b.do(func() { b.m.GiveUp(b.now, &b.out) })
	b.log = nil
	b.receive(0, "10.0.0.6", 100)
	b.until(50 * ms)
	if n := resignations(b); n != 0 {
		t.Errorf("%d resignations after another master was heard", n)
	}
	c := pairConfig(200)
	c.Pair = true
	b = master(t, c)
	b.do(func() { b.m.GiveUp(b.now, &b.out) })
	b.until(149 * ms)
	b.is(Backup)
	b.until(50 * ms)
	b.is(Master)
}
