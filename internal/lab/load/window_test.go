// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"imbang/internal/lab/arrivals"
)

// straggling answers at once, but for one request: that one after a delay.
func straggling(t testing.TB, nth int, late time.Duration) netip.AddrPort {
	var n atomic.Int64
	return serve(t, "127.0.0.1:0", func(_ int, c *net.TCPConn) {
		if int(n.Add(1)) == nth {
			time.Sleep(late)
		}
		c.Write([]byte(page))
	})
}

// One reply that comes 205 ms after the end of a window of one second is one
// reply less, not a rate that is 17 % lower.
func TestStragglerCostsOneReply(t *testing.T) {
	for name, p := range map[string]Plan{
		"a number":  {Rate: 500, Connections: 500},
		"a time":    {Rate: 500, Duration: time.Second},
		"a poisson": {Rate: 500, Connections: 500, Arrivals: arrivals.Poisson, Seed: 4},
	} {
		run := func() error {
			p.Target = straggling(t, 500, 205*time.Millisecond)
			if p.Arrivals == arrivals.Poisson {
				p.Target = straggling(t, 499, 205*time.Millisecond)
			}
			r := mustRun(t, p)
			if r.DurationSeconds < r.WindowSeconds+0.19 {
				return fmt.Errorf("the last reply came after %g s of a window of %g s, want 0.2 s later", r.DurationSeconds, r.WindowSeconds)
			}
			if cost := 1 - r.ReplyRate*r.WindowSeconds/500; cost < 0.001 || cost > 0.02 {
				return fmt.Errorf("%g replies/s in a window of %g s: one straggler costs %.1f %%, want 0.2 %%", r.ReplyRate, r.WindowSeconds, 100*cost)
			}
			each := float64(r.Bytes.Received()) / 500
			if got := r.ThroughputKBs * 1024 / each; math.Abs(got-r.ReplyRate) > 1 {
				return fmt.Errorf("bytes of %g replies/s, want those of %g", got, r.ReplyRate)
			}
			return nil
		}
		t.Run(name, func(t *testing.T) { attempts(t, run) })
	}
}

// A closed loop of a number of requests has its rate from the time in which
// all users are at work.
func TestStragglerOfClosedLoop(t *testing.T) {
	const each = 2 * time.Millisecond
	const near = 50 * time.Millisecond // the end, within which each user has a request
	for name, tc := range map[string]struct {
		p    Plan
		late bool // the window ends with the last reply
	}{
		"a number":          {Plan{Concurrency: 4, Connections: 400}, false},
		"a time":            {Plan{Concurrency: 4, Duration: 300 * time.Millisecond}, false},
		"one for each user": {Plan{Concurrency: 400, Connections: 400}, true},
	} {
		run := func() error {
			var n, began atomic.Int64
			tc.p.Target = serve(t, "127.0.0.1:0", func(_ int, c *net.TCPConn) {
				i := n.Add(1)
				if i == 1 {
					began.Store(time.Now().UnixNano())
				}
				time.Sleep(each)
				// As long as all others, where a busy machine takes long for them.
				if since := time.Duration(time.Now().UnixNano() - began.Load()); i == 400 || tc.p.Duration > 0 && i > 4 && since > tc.p.Duration-near {
					time.Sleep(max(400*time.Millisecond, since))
				}
				c.Write([]byte(page))
			})
			r := mustRun(t, tc.p)
			if r.DurationSeconds < 0.4 {
				return fmt.Errorf("no straggler: %g s", r.DurationSeconds)
			}
			if tc.late != (r.WindowSeconds == r.DurationSeconds) || !tc.late && r.WindowSeconds > r.DurationSeconds-0.3 {
				return fmt.Errorf("a window of %g s, the last reply after %g s", r.WindowSeconds, r.DurationSeconds)
			}
			if total := float64(r.Replies) / r.DurationSeconds; !tc.late && r.ReplyRate < 1.3*total {
				return fmt.Errorf("%g replies/s, %g until the straggler", r.ReplyRate, total)
			}
			if r.RepliesInWindow > r.Replies || r.RepliesInWindow < r.Replies-5 {
				return fmt.Errorf("%d replies in the window, %d in all", r.RepliesInWindow, r.Replies)
			}
			return nil
		}
		t.Run(name, func(t *testing.T) { attempts(t, run) })
	}
}

// Replies that come after the window to its last requests are made up for by
// those that come within it to the requests of the warm-up.
func TestWindowOfASteadyState(t *testing.T) {
	target := serve(t, "127.0.0.1:0", func(_ int, c *net.TCPConn) {
		time.Sleep(100 * time.Millisecond)
		c.Write([]byte(page))
	})
	attempts(t, func() error {
		r := mustRun(t, Plan{Target: target, Rate: 400, Warmup: 200 * time.Millisecond, Duration: 500 * time.Millisecond})
		if r.Replies != 200 || math.Abs(r.ReplyRate-400) > 20 {
			return fmt.Errorf("%g replies/s of 400 that take 100 ms each, %d replies", r.ReplyRate, r.Replies)
		}
		return nil
	})
	attempts(t, func() error {
		cold := mustRun(t, Plan{Target: target, Rate: 400, Duration: 500 * time.Millisecond})
		if cold.Replies != 200 || cold.RepliesInWindow > 165 {
			return fmt.Errorf("%d of %d replies in the window without a warm-up, want 160", cold.RepliesInWindow, cold.Replies)
		}
		return nil
	})
}

// The window of an open loop ends where its schedule does, and all clients
// know it before they begin.
func TestWindowIsKnown(t *testing.T) {
	ms := func(n int64) int64 { return n * int64(time.Millisecond) }
	for name, tc := range map[string]struct {
		p     Plan
		until int64
	}{
		"a time":              {Plan{Rate: 100, Warmup: time.Second, Duration: time.Second}, ms(2000)},
		"a number":            {Plan{Rate: 100, Warmup: time.Second, Connections: 50, Clients: make([]Client, 3)}, ms(1500)},
		"a trace":             {Plan{Trace: []Event{{}, {At: 7 * time.Millisecond}}}, ms(7) + 1},
		"a part of a trace":   {Plan{Trace: []Event{{}, {At: time.Hour}}, Duration: time.Second}, ms(1000)},
		"a closed loop":       {Plan{Concurrency: 5, Duration: time.Second}, ms(1000)},
		"a number of replies": {Plan{Concurrency: 5, Connections: 10}, math.MaxInt64},
	} {
		tc.p.Target = netip.MustParseAddrPort("127.0.0.1:80")
		var w window
		w.open(tc.p.withDefaults())
		if got := w.until.Load(); got != tc.until || w.from != int64(tc.p.Warmup) {
			t.Errorf("%s: from %d until %d, want until %d", name, w.from, got, tc.until)
		}
		if w.has(w.from-1) || !w.has(w.from) || w.has(tc.until) {
			t.Errorf("%s: the bounds are wrong", name)
		}
	}
}

// What starts after the window is not in the rate of starts.
func TestLateStartsAreNotInTheRate(t *testing.T) {
	p := Plan{Target: serve(t, "127.0.0.1:0", always(page)), Rate: 1000, Connections: 200}
	p.stall = func(issued int) {
		if issued == 150 {
			time.Sleep(200 * time.Millisecond)
		}
	}
	attempts(t, func() error {
		r := mustRun(t, p)
		if r.Issued != 200 || r.IssuedRate < 745 || r.IssuedRate > 755 || !r.Generator.Behind {
			return fmt.Errorf("%d issued, %g/s within the window of %g s, behind %v; want 150 in 0.2 s", r.Issued, r.IssuedRate, r.WindowSeconds, r.Generator.Behind)
		}
		return nil
	})
}
