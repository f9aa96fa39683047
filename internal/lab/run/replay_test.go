// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
	"imbang/internal/lab/study"
)

// openLog opens a log of ten requests in its first second and one in its
// fourth.
func openLog(t *testing.T, spec study.Replay) *Log {
	t.Helper()
	spec.Log = filepath.Join(t.TempDir(), "access.log")
	var b strings.Builder
	for i := range 11 {
		fmt.Fprintf(&b, "192.0.2.%d - - [20/Nov/2026:10:00:0%d +0000] \"GET /p%d HTTP/1.1\" 200 %d\n", i%3, i/10*3, i, 100*i)
	}
	if err := os.WriteFile(spec.Log, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := OpenLog(spec)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The rates of a plan are those of the log, or of the part that there is time
// for.
func TestLogEntersThePlan(t *testing.T) {
	l := openLog(t, study.Replay{Methods: []string{"GET"}})
	conditions := []record.Condition{{Arrivals: record.Replayed, Speed: 1}, {Arrivals: record.Replayed, Speed: 2}}
	for _, c := range []struct {
		duration time.Duration
		rates    [2]float64
		expected [2]time.Duration
	}{
		{0, [2]float64{3.143, 6.286}, [2]time.Duration{3500 * time.Millisecond, 1750 * time.Millisecond}},
		{2 * time.Second, [2]float64{5, 6.286}, [2]time.Duration{2 * time.Second, 1750 * time.Millisecond}},
		{time.Second, [2]float64{10, 10}, [2]time.Duration{time.Second, time.Second}},
	} {
		p := record.Plan{Conditions: append([]record.Condition(nil), conditions...), Duration: c.duration}
		if err := l.Enter(&p); err != nil {
			t.Fatal(err)
		}
		for i, got := range p.Conditions {
			if got.Rate != c.rates[i] || Expected(p, record.Cell{Condition: got}) != c.expected[i] {
				t.Errorf("cut after %v, speed %g: %g/s for %v, want %g for %v",
					c.duration, got.Speed, got.Rate, Expected(p, record.Cell{Condition: got}), c.rates[i], c.expected[i])
			}
		}
		if p.Replay.Clients != 3 || p.Replay.Bytes != 5500 || p.Replay.Busiest != 10 {
			t.Errorf("%+v", p.Replay)
		}
	}
}

// Where instants are random, the cells of a block have the same ones, and other
// blocks others.
func TestUniformReplaysDifferByBlock(t *testing.T) {
	l := openLog(t, study.Replay{Methods: []string{"GET"}, Uniform: true})
	trace := func(seed uint64) []load.Event {
		p := load.Plan{Seed: seed}
		if err := l.fill(&p, 1, 0); err != nil {
			t.Fatal(err)
		}
		if p.Requests[3].Path != "/bytes/300/p3" {
			t.Errorf("the fourth request is %+v", p.Requests[3])
		}
		return p.Trace
	}
	if a, b := trace(1), trace(1); a[5] != b[5] {
		t.Errorf("one seed gives %+v and %+v", a[5], b[5])
	}
	if a, b := trace(1), trace(2); a[5].At == b[5].At {
		t.Errorf("two seeds give %+v and %+v", a[5], b[5])
	}
}
