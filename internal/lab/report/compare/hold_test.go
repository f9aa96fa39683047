// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"testing"

	"imbang/internal/lab/load"
	"imbang/internal/lab/stats"
)

// found compares two runs of rr, of which the second is changed, and returns
// its finding on the mean response time.
func found(t *testing.T, mean float64, change func(block int, r *load.Result)) (stats.Shift, *Comparison) {
	t.Helper()
	b := run(t, "2000", "rr", 8, func(string, float64) float64 { return mean })
	for _, s := range b.Samples {
		change(s.Block, s.Load)
	}
	c, err := compared2(t, run(t, "2000", "rr", 8, one), b)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range c.Metrics {
		if m.Key == "response_time" {
			return m.Cells[0].Shift, c
		}
	}
	return stats.Shift{}, c
}

func TestClaimsHoldWithAndWithoutLateRuns(t *testing.T) {
	late := func(only func(block int) bool) func(int, *load.Result) {
		return func(block int, r *load.Result) { r.Generator.Behind = only(block) }
	}
	for name, tc := range map[string]struct {
		change func(int, *load.Result)
		want   stats.Finding
	}{
		"none late":       {late(func(int) bool { return false }), stats.Different},
		"one late":        {late(func(b int) bool { return b == 3 }), stats.Different},
		"too few on time": {late(func(b int) bool { return b > 2 }), stats.Unclear},
	} {
		if s, _ := found(t, 1.5, tc.change); s.Finding != tc.want || s.BlocksB != 8 {
			t.Errorf("%s: %+v, want %s", name, s, tc.want)
		}
	}
	// The difference is in the late runs alone.
	s, _ := found(t, 1, func(block int, r *load.Result) {
		if block > 2 {
			return
		}
		r.Generator.Behind = true
		r.Response.MeanMS *= 3
	})
	if s.Finding == stats.Different || s.Joint.Low > 0 {
		t.Errorf("of late runs alone: %+v", s)
	}
}

func TestClaimsHoldWithoutDelay(t *testing.T) {
	delayed := func(delay float64) func(int, *load.Result) {
		return func(_ int, r *load.Result) {
			r.Service = r.Response
			r.Service.MeanMS -= delay
			r.Generator.Lateness = load.Latency{Count: 1000, MeanMS: delay, P50MS: delay, P99MS: delay}
		}
	}
	if s, _ := found(t, 1.5, delayed(0.1)); s.Finding != stats.Different {
		t.Errorf("a difference of 0.5 ms, of which 0.1 is delay: %+v", s)
	}
	if s, _ := found(t, 1.5, delayed(0.5)); s.Finding != stats.Unclear || s.Joint.Low > 0 {
		t.Errorf("a difference that is delay: %+v", s)
	}
	s, c := found(t, 1.5, delayed(0.9)) // most of the latency, and of the median too
	if s.Name != "" || len(c.NotCompared) != 2 || c.NotCompared[0].Causes[0] != "Response time, mean: generator delay can explain it" {
		t.Errorf("%+v, %+v", s, c.NotCompared)
	}
}

// A claim needs both variants.
func TestBoth(t *testing.T) {
	shift := func(f stats.Finding, difference float64) stats.Shift {
		return stats.Shift{Finding: f, Difference: difference, BlocksA: 8, BlocksB: 8,
			Joint: stats.Interval{Low: difference - 0.1, High: difference + 0.1}}
	}
	for _, tc := range []struct{ x, y, want stats.Finding }{
		{stats.Different, stats.Different, stats.Different}, {stats.Different, stats.Unclear, stats.Unclear}, {stats.Unclear, stats.Different, stats.Unclear},
		{stats.Different, stats.Slight, stats.Slight}, {stats.Slight, stats.Different, stats.Slight}, {stats.Equal, stats.Equal, stats.Equal},
		{stats.Equal, stats.Slight, stats.Unclear}, {stats.Unclear, stats.Unclear, stats.Unclear},
	} {
		if got := both(shift(tc.x, 0.3), shift(tc.y, 0.2)); got.Finding != tc.want || got.Joint.Low > 0.1+1e-12 || got.Joint.High < 0.4 {
			t.Errorf("%s and %s: %+v, want %s", tc.x, tc.y, got, tc.want)
		}
	}
	if got := both(shift(stats.Different, 0.3), shift(stats.Different, -0.3)); got.Finding != stats.Unclear {
		t.Errorf("of opposite signs: %+v", got)
	}
}
