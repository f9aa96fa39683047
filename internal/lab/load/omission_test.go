// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"math"
	"net/netip"
	"sync"
	"testing"
	"time"

	"imbang/internal/lab/arrivals"
)

// stalling is a server that stalls for 300 ms, 200 ms after its first request.
func stalling(t *testing.T) netip.AddrPort {
	const stall = 300 * time.Millisecond
	var once sync.Once
	var from time.Time
	return serveMany(t, "127.0.0.1:0", func(asked) string {
		once.Do(func() { from = time.Now().Add(200 * time.Millisecond) })
		if d := time.Since(from); d >= 0 && d < stall {
			time.Sleep(stall - d)
		}
		return kept
	})
}

// A server stalls for 300 ms under 500 requests/s. The 125 due in its first
// 250 ms each wait 50 ms or more, and must say so, however they are scheduled
// and whether or not they find a connection open.
func TestServerStallIsSeenByAllArrivals(t *testing.T) {
	var trace []Event
	for i := range 500 {
		trace = append(trace, Event{At: time.Duration(2*i) * time.Millisecond, Source: int32(i)})
	}
	for name, p := range map[string]Plan{
		"a connection each":   {Rate: 500, Connections: 500},
		"kept connections":    {Rate: 500, Connections: 500, RequestsPerConnection: Unlimited},
		"four a connection":   {Rate: 500, Connections: 500, RequestsPerConnection: 4},
		"a ramp":              {Rate: 499, Shape: arrivals.Shape{RampTo: 501}, Connections: 500, RequestsPerConnection: Unlimited},
		"a trace":             {Trace: trace},
		"a trace, kept":       {Trace: trace, RequestsPerConnection: Unlimited, Clients: []Client{{Sources: loopbacks(3)}}},
		"several kinds, kept": {Rate: 500, Connections: 500, RequestsPerConnection: Unlimited, Requests: []Request{{}, {Method: "POST", Body: "{n}"}}},
	} {
		t.Run(name, func(t *testing.T) {
			attempts(t, func() error {
				p.Target = stalling(t)
				r := mustRun(t, p)
				if r.Replies != 500 {
					t.Fatalf("%d replies, loss %+v", r.Replies, r.Loss)
				}
				if n := over(t, r.Response, 50*time.Millisecond); n < 115 {
					return fmt.Errorf("%d response times show the stall, want about 125", n)
				}
				if r.Generator.MaxOpen < 60 {
					return fmt.Errorf("at most %d connections open: the stall slowed the schedule", r.Generator.MaxOpen)
				}
				if r.Response.MaxMS < 250 {
					return fmt.Errorf("longest response %.1f ms, want near 300", r.Response.MaxMS)
				}
				return nil
			})
		})
	}
}

// A closed loop sees the stall once for each user, which is what its caveat
// is about.
func TestClosedLoopOmits(t *testing.T) {
	var r *Result
	attempts(t, func() error {
		r = mustRun(t, Plan{Target: stalling(t), Concurrency: 5, Think: 10 * time.Millisecond, Connections: 500})
		if n := over(t, r.Response, 100*time.Millisecond); n < 1 || n > 50 {
			return fmt.Errorf("%d response times show the stall, want about 5 and not the 100 of an open loop", n)
		}
		return nil
	})
	if len(r.Caveats) != 1 || r.Caveats[0] != omission {
		t.Errorf("caveats %q", r.Caveats)
	}
}

// The generator itself stands still for 300 ms. Every arrival due meanwhile
// is issued late, none is skipped; its response time counts from the intended
// start and shows the stall, which the service time, from the actual start,
// hides. And the generator admits it.
func TestGeneratorStallIsAdmitted(t *testing.T) {
	target := serve(t, "127.0.0.1:0", always(page))
	stalled := false
	p := Plan{Target: target, Rate: 500, Connections: 500}
	p.stall = func(issued int) {
		if issued == 100 && !stalled {
			stalled = true
			time.Sleep(300 * time.Millisecond)
		}
	}
	r := mustRun(t, p)
	if r.Replies != 500 || r.Issued != 500 {
		t.Fatalf("%d issued, %d replies, loss %+v", r.Issued, r.Replies, r.Loss)
	}
	if n := over(t, r.Response, 50*time.Millisecond); n < 115 {
		t.Errorf("%d response times show the stall, want about 125", n)
	}
	// What the service time hides is exactly the lateness, whatever else the
	// machine was doing: 150 arrivals late by 150 ms on average, of 500.
	hidden, late := r.Response.MeanMS-r.Service.MeanMS, r.Generator.Lateness.MeanMS
	if late < 40 || math.Abs(hidden-late) > 0.01*r.Response.MeanMS+0.1 {
		t.Errorf("mean response %.2f ms, service %.2f, lateness %.2f: want the difference to be the lateness, about 45",
			r.Response.MeanMS, r.Service.MeanMS, late)
	}
	if n := over(t, r.Generator.Lateness, 50*time.Millisecond); n < 115 {
		t.Errorf("%d starts late by 50 ms, want about 125", n)
	}
	if !r.Generator.Behind || r.Generator.Reason == "" {
		t.Errorf("behind %v (%s) after a stall", r.Generator.Behind, r.Generator.Reason)
	}
}

// What cannot be issued within the grace is client loss, not silence.
func TestUnissuedArrivalsAreClientLoss(t *testing.T) {
	target := serve(t, "127.0.0.1:0", always(page))
	p := Plan{Target: target, Rate: 1000, Connections: 200, Grace: 50 * time.Millisecond}
	p.stall = func(int) { time.Sleep(5 * time.Millisecond) } // at most 200/s
	attempts(t, func() error {
		r := mustRun(t, p)
		if u := r.Loss.Client.Unissued; u == 0 || u+r.Issued != 200 || r.Issued == 0 {
			return fmt.Errorf("%d issued, %d unissued of 200", r.Issued, u)
		}
		if !r.Generator.Behind {
			t.Error("not behind at a fifth of the rate")
		}
		return nil
	})
}
