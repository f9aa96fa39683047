// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"net"
	"testing"
	"time"

	"imbang/internal/testenv"
)

// Lateness is a matter of the schedule: whatever the response times are, the
// verdict is the same.
func TestLatenessIgnoresResponses(t *testing.T) {
	for _, loop := range []string{openLoop, closedLoop, traceLoop} {
		for late, behind := range map[float64]bool{0: false, 9.9: false, 10.1: true, 60: true} { // 99th percentiles, ms
			for _, response := range []float64{0, 12, 200, 300, 1000, 10_000} {
				r := Result{Loop: loop, IssuedRate: 100, OfferedRate: 100}
				r.Generator.Lateness.P99MS = late
				r.Response = Latency{Count: 100, MeanMS: response, P50MS: response, P99MS: response, MaxMS: response}
				if r.Judge(); r.Generator.Behind != behind {
					t.Errorf("%s, %g ms late, responses of %g ms: behind %v, want %v", loop, late, response, r.Generator.Behind, behind)
				}
			}
		}
	}
}

// A result can be judged again.
func TestJudgeTwice(t *testing.T) {
	r := Result{IssuedRate: 50, OfferedRate: 100}
	r.Judge()
	first := r.Generator.Reason
	if r.Judge(); !r.Generator.Behind || r.Generator.Reason != first {
		t.Errorf("first %q, then %q", first, r.Generator.Reason)
	}
	r.IssuedRate = 100
	if r.Judge(); r.Generator.Behind || r.Generator.Reason != "" {
		t.Errorf("still behind: %q", r.Generator.Reason)
	}
}

// A server that takes most of the run to answer does not make the generator
// late, nor does it excuse one that stood still.
func TestSlowServerIsNotLateness(t *testing.T) {
	target := serve(t, "127.0.0.1:0", func(_ int, c *net.TCPConn) {
		time.Sleep(400 * time.Millisecond)
		c.Write([]byte(page))
	})
	p := Plan{Target: target, Rate: 200, Duration: 500 * time.Millisecond}
	attempts(t, func() error {
		r := mustRun(t, p)
		if late := r.Generator.Lateness.P99MS; r.Generator.Behind && late < maxLatenessMS {
			return fmt.Errorf("behind: %s", r.Generator.Reason)
		}
		return nil
	})
	p.stall = func(issued int) {
		if issued == 50 {
			time.Sleep(18 * time.Millisecond) // less than a twentieth of the response times
		}
	}
	// Other work makes some runs later, the server's time would make each so.
	const most = 350 // less than that
	attempts(t, func() error {
		stalls := testenv.WatchStalls(t)
		r := mustRun(t, p)
		if !r.Generator.Behind {
			t.Fatal("not behind after a stall of 18 ms")
		}
		stalled := stalls.Longest()
		if late := r.Generator.Lateness.P99MS; late > min(most, maxLatenessMS*3+float64(stalled.Milliseconds())) {
			return fmt.Errorf("%.1f ms late after a stall of 18 ms, beside stalls of %v", late, stalled)
		}
		return nil
	})
}

// A user is late after the think time, not after a slow reply.
func TestLatenessOfUsers(t *testing.T) {
	slow := serve(t, "127.0.0.1:0", func(_ int, c *net.TCPConn) {
		time.Sleep(30 * time.Millisecond)
		c.Write([]byte(page))
	})
	p := Plan{Target: slow, Concurrency: 4, Think: 5 * time.Millisecond, Duration: 400 * time.Millisecond}
	attempts(t, func() error {
		if r := mustRun(t, p); r.Generator.Lateness.P50MS > 5 {
			return fmt.Errorf("lateness %.1f ms of users who wait 30 ms for replies and think for 5 ms", r.Generator.Lateness.P50MS)
		}
		return nil
	})
	p.stall = func(issued int) {
		if issued%8 == 0 {
			time.Sleep(20 * time.Millisecond)
		}
	}
	if r := mustRun(t, p); !r.Generator.Behind {
		t.Errorf("not behind, lateness %.1f ms at the 99th percentile", r.Generator.Lateness.P99MS)
	}
}
