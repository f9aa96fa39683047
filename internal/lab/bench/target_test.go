// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"slices"
	"strings"
	"testing"

	"imbang/internal/lab/stats"
)

func TestTargets(t *testing.T) {
	v := stats.Summarize([]float64{0.9, 1, 1.2})
	const median = "missed: the median meets it, the interval does not"
	for _, c := range []struct {
		target         Target
		bound, verdict string
	}{
		{atLeast("", "", 0.9, v), "at least 0.9", "met"},
		{atLeast("", "", 1, v), "at least 1", median},
		{atLeast("", "ms", 1.01, v), "at least 1.01 ms", "missed"},
		{atMost("", "bytes", 320, v), "at most 320 bytes", "met"},
		{atMost("", "", 1.1, v), "at most 1.1", median},
		{atMost("", "", 1.1, v).within(stats.Interval{Low: 0.95, High: 1.05, Level: 0.95}), "at most 1.1", "met"},
		{atMost("", "", 0.99, v), "at most 0.99", "missed"},
		{atMost("", "", 2, v).within(stats.Interval{Low: 0.9, High: 1.2, Level: 0.75}), "at most 2", "missed: too few rounds for an interval of 95 %"},
		{atMost("", "", 2, v).invalid("1 of 9 packets was lost"), "at most 2", "missed: 1 of 9 packets was lost"},
		{atMost("", "", 1, stats.Summary{}), "at most 1", "missed"}, // nothing was measured
	} {
		if c.target.Bound() != c.bound || c.target.Verdict() != c.verdict {
			t.Errorf("%+v: %s, %s", c.target, c.target.Bound(), c.target.Verdict())
		}
	}
}

func TestFigure(t *testing.T) {
	for want, s := range map[string]stats.Summary{
		"none":                   {},
		"12346":                  {N: 1, Median: 12345.6},
		"1.23 (0.50 to 20.00)":   {N: 3, Median: 1.234, Min: 0.5, Max: 20},
		"0.012 (0.001 to 0.100)": {N: 2, Median: 0.01234, Min: 0.001, Max: 0.1},
		"0":                      {N: 1},
	} {
		if got := Figure(s); got != want {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
	}
}

// Ratios are those of the rounds, with the interval of their median.
func TestPathConclusion(t *testing.T) {
	p := &pathRun{
		PathConfig: PathConfig{Competitors: []string{yardstick, ownName, "nftables"}},
		done:       6, samples: map[string]map[string][]float64{}, tallies: map[string]*pathTally{},
	}
	for name, factor := range map[string]float64{yardstick: 1, ownName: 0.9} {
		p.samples[name] = map[string][]float64{}
		for _, m := range pathMeasures {
			p.samples[name][m.name] = []float64{10 * factor, 40 * factor, 1000 * factor, 5 * factor, 20 * factor, 7}
		}
		p.tallies[name] = &pathTally{PathLoad{Competitor: name}, map[string]int{"s1": 1, "s2": 3}}
	}
	r := p.conclude()
	if len(r.Rows) != 2*len(pathMeasures)-len(pathDifferences) || len(r.Targets) != 5 || r.Rounds != 6 {
		t.Fatalf("%+v", r)
	}
	want := stats.Interval{Low: 0.9, High: 1, Level: 0.96875} // six are just enough
	for _, row := range r.Rows {
		over, is := row.Over[yardstick]
		if slices.Contains(pathDifferences, row.Measure) {
			if is || row.Competitor != ownName || row.Rounds[2] != -100 { // 900 less 1000
				t.Errorf("%+v", row)
			}
			continue
		}
		if is != (row.Competitor == ownName) || is && (over.N != 6 || over.Median != 0.9 || row.Within[yardstick] != want) {
			t.Errorf("%+v", row)
		}
	}
	for _, target := range r.Targets {
		if target.Within == nil || *target.Within != want {
			t.Errorf("%+v", target.Within)
		}
		if target.Met != (target.Most > 0) { // 0.9 of the yardstick: less CPU, and less done
			t.Errorf("%+v", target)
		}
	}
	if s := r.Requests[0].Shares; len(s) != 2 || s[1] != 0.75 {
		t.Errorf("shares %v", s)
	}
}

// Ratios are to the fastest peer first, whose place differs by measure.
func TestFastestPeerFirst(t *testing.T) {
	names := []string{yardstick, ownName, "nftables", "haproxy-tcp", "nginx-stream"}
	p := &pathRun{
		PathConfig: PathConfig{Competitors: names}, done: 1,
		samples: map[string]map[string][]float64{}, tallies: map[string]*pathTally{},
	}
	for i, name := range names {
		p.tallies[name], p.samples[name] = newPathTally(name), map[string][]float64{}
		for _, m := range pathMeasures {
			p.samples[name][m.name] = []float64{float64(i + 1)}
		}
	}
	r := p.conclude()
	for measure, want := range map[string][]string{
		pathNew:     {"nginx-stream", "haproxy-tcp", "nftables", yardstick},
		pathCPUConn: {"nftables", "haproxy-tcp", "nginx-stream", yardstick},
	} {
		if got := r.References(measure); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", measure, got, want)
		}
	}
	if want := pathNew + ", ratio to haproxy-tcp"; r.Targets[0].Name != want {
		t.Errorf("the first target is %q, want %q", r.Targets[0].Name, want)
	}
}

// Who takes part twice has two names, and is compared with itself.
func TestPathAgainstItself(t *testing.T) {
	names := apart([]string{yardstick, ownName, ownName, ownName})
	if want := []string{yardstick, ownName, ownName + again, ownName + again + again}; !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
	p := &pathRun{
		PathConfig: PathConfig{Competitors: names}, done: 1,
		samples: map[string]map[string][]float64{}, tallies: map[string]*pathTally{},
	}
	for i, name := range names {
		p.tallies[name], p.samples[name] = newPathTally(name), map[string][]float64{}
		for _, m := range pathMeasures {
			p.samples[name][m.name] = []float64{float64(i + 1)}
		}
	}
	r := p.conclude()
	if others := r.References(pathNew); !slices.Equal(others, []string{yardstick, ownName}) {
		t.Errorf("%q", others)
	}
	for _, row := range r.Rows[:4] {
		if over, is := row.Over[ownName]; is != strings.HasSuffix(row.Competitor, again) || is && over.Median != row.Value.Median/2 {
			t.Errorf("%+v", row)
		}
	}
}
