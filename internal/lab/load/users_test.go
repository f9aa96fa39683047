// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"imbang/internal/lab/arrivals"
)

func TestClosedLoopByNumber(t *testing.T) {
	var now, most atomic.Int64
	target := serve(t, "127.0.0.1:0", func(_ int, c *net.TCPConn) {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(5 * time.Millisecond)
		now.Add(-1)
		c.Write([]byte(page))
	})
	p := Plan{Target: target, Concurrency: 6, Connections: 300, Clients: make([]Client, 2), Warmup: 50 * time.Millisecond}
	r := mustRun(t, p)
	if r.Replies != 300 || r.Issued != 300 || r.Connections != 300 {
		t.Fatalf("%d issued, %d replies, loss %+v", r.Issued, r.Replies, r.Loss)
	}
	if n := most.Load(); n > 6 || n < 5 {
		t.Errorf("%d requests at once with 6 users", n)
	}
	if r.Generator.Connections <= 300 {
		t.Errorf("%d connections with the warm-up", r.Generator.Connections)
	}
	if r.Loop != "closed" || r.Concurrency != 6 || r.OfferedRate != 0 || r.AskedRate != 0 || len(r.Caveats) != 1 ||
		!strings.Contains(r.Caveats[0], "coordinated omission") {
		t.Errorf("does not say what it is: %q, %d users, offered %g, %q", r.Loop, r.Concurrency, r.OfferedRate, r.Caveats)
	}
	// Every user needs 5 ms a request.
	if r.ReplyRate > 6/0.005 || math.Abs(r.ReplyRate*r.WindowSeconds-float64(r.RepliesInWindow)) > 1e-6 || r.WindowSeconds > r.DurationSeconds {
		t.Errorf("%g replies/s in %g s of %g s", r.ReplyRate, r.WindowSeconds, r.DurationSeconds)
	}
	// The last request is sent when at most 6 others are unanswered; replies to
	// the warm-up are at most 6 more.
	if n := r.RepliesInWindow; n < 300-6 || n > 300+6 {
		t.Errorf("%d replies in the window of 300", n)
	}
}

func TestClosedLoopByTime(t *testing.T) {
	target := serve(t, "127.0.0.1:0", func(_ int, c *net.TCPConn) {
		time.Sleep(2 * time.Millisecond)
		c.Write([]byte(page))
	})
	attempts(t, func() error {
		r := mustRun(t, Plan{Target: target, Concurrency: 3, Duration: 300 * time.Millisecond})
		if r.WindowSeconds != 0.3 || r.Replies != r.Scheduled || r.Replies < 30 || r.Replies > 450 {
			return fmt.Errorf("%d replies in %g s, loss %+v", r.Replies, r.WindowSeconds, r.Loss)
		}
		return nil
	})
}

// Thinking users send at most one request per pause.
func TestThinking(t *testing.T) {
	target := serve(t, "127.0.0.1:0", always(page))
	for _, gaps := range []arrivals.Distribution{arrivals.Constant, arrivals.Poisson} {
		p := Plan{Target: target, Concurrency: 20, Think: 50 * time.Millisecond, Duration: time.Second, Arrivals: gaps}
		// 20 users every 50 ms are 400; exponential pauses have a standard
		// deviation of 20.
		attempts(t, func() error {
			if r := mustRun(t, p); r.Replies < 200 || r.Replies > 480 || (gaps == arrivals.Constant && r.Replies > 400) {
				return fmt.Errorf("%v: %d replies, want up to 400", gaps, r.Replies)
			}
			return nil
		})
	}
}

// A server that refuses gets a request per user and pause, not as many as the
// client's CPU can send.
func TestRefusedUsersPause(t *testing.T) {
	attempts(t, func() error {
		r := mustRun(t, Plan{Target: closedPort(t), Concurrency: 4, Duration: 200 * time.Millisecond})
		if n := r.Loss.Refused; n == 0 || n > 4*(1+int(200*time.Millisecond/afterFailure)) || n != r.Scheduled {
			return fmt.Errorf("%d refused of %d", n, r.Scheduled)
		}
		return nil
	})
}

func TestTurnsComeInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := &users{}
		var model []int64
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(model) > 0 && rapid.Bool().Draw(t, "pop") {
				if got := u.pop().at; got != slices.Min(model) {
					t.Fatalf("popped %d of %v", got, model)
				}
				model = slices.Delete(model, slices.Index(model, slices.Min(model)), slices.Index(model, slices.Min(model))+1)
				continue
			}
			at := rapid.Int64Range(0, 20).Draw(t, "at")
			u.push(turn{at: at})
			model = append(model, at)
		}
	})
}
