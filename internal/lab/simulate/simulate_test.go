// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/lab/arrivals"
	"imbang/internal/lab/distribution"
	"imbang/internal/testenv"
)

// Queueing theory and Linux's rules say what must come of these.
func TestValidate(t *testing.T) {
	testenv.Root(t)
	all, err := Validate(t.Context(), 0.1, 1, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		if !v.Right {
			t.Errorf("%s: %s is %g ±%g, want %g (%s)", v.Name, v.Figure, v.Simulated.Mean, v.Simulated.HalfWidth, v.Expected, v.Source)
		}
	}
	if t.Failed() || testing.Verbose() {
		_ = ValidationText(os.Stdout, all)
	}
}

func small(schedulers ...string) Config {
	c := Config{
		Concurrency: 1, Backlog: -1, Distribution: distribution.Pareto, Service: 100 * time.Millisecond, Arrivals: arrivals.Pattern{Distribution: arrivals.Poisson, Shape: arrivals.Shape{Burst: 5}},
		Clients: 500, Destinations: 200, DestinationZipf: 0.8, Cache: 20, HitShare: 0.2,
		Schedulers: schedulers, Rates: []float64{60}, Connections: 3000, Warmup: 0.1, Repeats: 1, Seed: 5, Jobs: 1,
	}
	for i := range 8 {
		c.Servers = append(c.Servers, Server{Speed: 1 + float64(i%2), Weight: int32(1 + i%2)})
	}
	return c
}

// stripped is an outcome without what wall time has a part in.
func stripped(o Outcome) Outcome {
	o.WallSeconds = 0
	return o
}

// The same seed comes to the same, whatever was played before; and the packets
// that Short leaves out change nothing but the work.
func TestSameSeedSameOutcome(t *testing.T) {
	testenv.Root(t)
	c := small("lblcr", "twos", "sh", "twos", "lblcr", "sh")
	short := c
	short.Short = true
	s, err := newStage(&c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	outcomes, err := s.play(t.Context(), &c)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.play(t.Context(), &short)
	if err != nil {
		t.Fatal(err)
	}
	for a, b := range map[int]int{0: 4, 1: 3, 2: 5} {
		want := stripped(outcomes[a])
		if diff := cmp.Diff(want, stripped(outcomes[b])); diff != "" {
			t.Errorf("%s differs:\n%s", want.Scheduler, diff)
		}
		if want.Scheduler == "twos" {
			continue // each packet may draw a number
		}
		if diff := cmp.Diff(want, stripped(again[a])); diff != "" {
			t.Errorf("%s differs with fewer packets:\n%s", want.Scheduler, diff)
		}
	}
	if cmp.Equal(outcomes[0].PerServer, outcomes[2].PerServer) {
		t.Error("lblcr and sh came to the same")
	}
}

// Every connection is served or lost for a cause, and when all is over the
// data plane has none of them left.
func TestNothingIsLeft(t *testing.T) {
	testenv.Root(t)
	c := small("wlc")
	c.Backlog, c.Patience, c.Warmup, c.Cache = 3, 300*time.Millisecond, 0, 0
	c.Rates = []float64{200} // too many
	s, err := newStage(&c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	p := s.planes[0]
	err = s.network.ns.Do(func() error {
		if err := p.begin(&c, "wlc", 1); err != nil {
			return err
		}
		w := newWorld(&c, p, 200, 1, func(int) {})
		if err := w.run(t.Context()); err != nil {
			return err
		}
		o, err := w.outcome()
		if err != nil {
			return err
		}
		served := int(w.tally.response.TotalCount())
		if o.Connections != c.Connections || served+o.Loss.Total() != c.Connections {
			t.Errorf("of %d connections %d were counted, %d served and %+v lost", c.Connections, o.Connections, served, o.Loss)
		}
		if o.Loss.Refused == 0 || o.Loss.GaveUp == 0 || o.Loss.Director != 0 {
			t.Errorf("lost: %+v", o.Loss)
		}
		if o.Utilisation < 0.9 || o.Utilisation > 1 {
			t.Errorf("servers that have too much to do are busy for %g of the time", o.Utilisation)
		}
		later := w.now + int64(longest+time.Second)
		if err := errors.Join(p.setTime(later), p.v.Sweep()); err != nil {
			return err
		}
		for i := range c.Servers {
			if active, inactive, err := p.v.Load(i); err != nil || active+inactive != 0 {
				t.Errorf("server %d has %d active and %d inactive connections left (%v)", i, active, inactive, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A run that is interrupted ends soon, and its namespace goes.
func TestInterrupted(t *testing.T) {
	testenv.Root(t)
	ctx, stop := context.WithCancel(t.Context())
	c := small("rr")
	c.Connections = 1 << 21
	c.Progress = func(done, all int) { stop() }
	if _, err := Run(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}
