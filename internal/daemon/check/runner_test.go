// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"imbang/internal/testenv"
)

// scripted is a check that succeeds or fails as it is told, and takes its time.
type scripted struct {
	mu     sync.Mutex
	starts []time.Time
	takes  time.Duration
	fails  bool
	under  int
}

func (s *scripted) Check(ctx context.Context, _ Target) Result {
	s.mu.Lock()
	s.starts = append(s.starts, time.Now())
	takes, fails := s.takes, s.fails
	s.under++
	if s.under > 1 {
		panic("two checks at once")
	}
	s.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		fails = true
	}
	s.mu.Lock()
	s.under--
	s.mu.Unlock()
	return Result{OK: !fails}
}

func (s *scripted) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.starts)
}

func TestRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reports := map[string]int{}
		var mu sync.Mutex
		r := NewRunner(func(id string, _ Result, _ time.Time) {
			mu.Lock()
			reports[id]++
			mu.Unlock()
		})
		a, b := &scripted{takes: time.Millisecond}, &scripted{takes: time.Hour}
		timing := Timing{Interval: time.Second, Fast: 100 * time.Millisecond, Timeout: 500 * time.Millisecond, Rise: 2, Fall: 3, Initial: Up}
		up := timing.Begin(time.Now())
		r.Set(map[string]Job{"a": {a, Target{}, timing, up}, "b": {b, Target{}, timing, up}})
		time.Sleep(10*time.Second + time.Millisecond)
		if n := a.count(); n != 11 {
			t.Errorf("%d checks of a, want 11 in 10 s", n)
		}
		// Two more at the fast interval, as fast as timeouts allow; then it is down.
		if n := b.count(); n < 11 || n > 13 {
			t.Errorf("%d checks of b", n)
		}
		a.mu.Lock()
		a.fails = true
		a.mu.Unlock()
		before := a.count() + 1 // one fails: two more follow at once
		for a.count() < before {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(200 * time.Millisecond)
		if n := a.count() - before; n != 2 {
			t.Errorf("%d checks in 200 ms while a change is under way, want 2", n)
		}
		time.Sleep(5 * time.Second)
		// A job that stays keeps its time, one that goes is not reported any more.
		stays := a.count()
		for range 20 {
			r.Set(map[string]Job{"a": {a, Target{}, timing, up}})
			time.Sleep(100 * time.Millisecond)
		}
		if n := a.count() - stays; n != 2 {
			t.Errorf("%d checks in 2 s of being set", n)
		}
		mu.Lock()
		gone := reports["b"]
		mu.Unlock()
		time.Sleep(5 * time.Second)
		mu.Lock()
		if reports["b"] != gone || reports["a"] < 15 {
			t.Errorf("%v, b had %d", reports, gone)
		}
		mu.Unlock()
		r.Stop()
		n := a.count()
		time.Sleep(5 * time.Second)
		if a.count() != n {
			t.Error("a check after the end")
		}
		if d := r.Delay(); d.Checks < 20 || d.P99 > time.Millisecond {
			t.Errorf("%+v", d)
		}
	})
}

// First checks are spread, and intervals vary downwards.
func TestSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRunner(func(int, Result, time.Time) {})
		jobs, all := map[int]Job{}, make([]*scripted, 200)
		for i := range all {
			all[i] = &scripted{takes: time.Millisecond}
			jobs[i] = Job{all[i], Target{}, Timing{Interval: 10 * time.Second, Timeout: time.Second, Jitter: 0.2, Spread: 10 * time.Second, Rise: 1, Fall: 1}, State{}}
		}
		start := time.Now()
		r.Set(jobs)
		time.Sleep(101 * time.Second)
		r.Stop()
		buckets := make([]int, 10)
		for _, s := range all {
			buckets[s.starts[0].Sub(start)/time.Second]++
			for i := 1; i < len(s.starts); i++ {
				if gap := s.starts[i].Sub(s.starts[i-1]); gap < 8*time.Second-2*reserve(10*time.Second) || gap > 10*time.Second {
					t.Fatalf("%s between two checks", gap)
				}
			}
		}
		for _, n := range buckets {
			if n < 2 || n > 55 { // of 20 expected: by chance once in ten million times
				t.Errorf("first checks in each second: %v", buckets)
			}
		}
	})
}

// A job goes on from the state that is known: what changes it is checked fast.
func TestKnownState(t *testing.T) {
	timing := Timing{Interval: 10 * time.Second, Fast: time.Second, Timeout: time.Second, Rise: 3, Fall: 3, Initial: Up}
	for _, c := range []struct {
		name  string
		state State
		fails bool
		want  int // checks in 5 s: at 0 s, and while a change is under way each second
	}{
		{"down, and succeeds", State{Verdict: Down}, false, 3},
		{"down, and fails", State{Verdict: Down}, true, 1},
		{"down, one success before", State{Verdict: Down, Row: 1}, false, 2},
		{"up, and fails", State{Verdict: Up}, true, 3},
		{"up, and succeeds", State{Verdict: Up}, false, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := NewRunner(func(string, Result, time.Time) {})
			s := &scripted{takes: time.Millisecond, fails: c.fails}
			r.Set(map[string]Job{c.name: {s, Target{}, timing, c.state}})
			time.Sleep(5 * time.Second)
			r.Stop()
			if n := s.count(); n != c.want {
				t.Errorf("%s: %d checks in 5 s, want %d", c.name, n, c.want)
			}
		})
	}
}

// Stop does not wait for the timeouts of checks of silent servers.
func TestStop(t *testing.T) {
	at := netip.MustParseAddrPort(listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }))
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	for _, c := range []struct {
		name string
		spec Spec
		at   netip.AddrPort
	}{
		{"tcp", &TCP{Expect: "x"}, at},
		{"tls", &TLS{}, at},
		{"http", &HTTP{}, at},
		{"udp", &UDP{Expect: "x"}, netip.MustParseAddrPort(silent.LocalAddr().String())},
		{"script", &Script{Command: []string{"/bin/sleep", "8"}}, at},
		{"agent", &Agent{}, at},
	} {
		checker, err := c.spec.Checker()
		if err != nil {
			t.Fatal(err)
		}
		r := NewRunner(func(string, Result, time.Time) {})
		r.Set(map[string]Job{c.name: {checker, Target{Addr: c.at}, Timing{Interval: 8 * time.Second, Timeout: 8 * time.Second, Rise: 1, Fall: 1}, State{}}})
		time.Sleep(100 * time.Millisecond) // it waits for a reply
		begin, stalls := time.Now(), testenv.WatchStalls(t)
		r.Stop()
		if took := time.Since(begin); took > 4*time.Second+3*stalls.Longest() {
			t.Errorf("%s: stopped after %s, beside stalls of %s", c.name, took, stalls.Longest())
		}
	}
}
