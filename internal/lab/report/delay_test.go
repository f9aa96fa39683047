// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/csv"
	"slices"
	"strings"
	"testing"

	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
)

// delayedBy gives a run a generator delay [ms], of which the response times
// are the part that they contain.
func delayedBy(r *load.Result, mean, p99 float64) *load.Result {
	r.Generator.Lateness = load.Latency{Count: 2000, MeanMS: mean, P50MS: mean, P99MS: p99, MaxMS: 2 * p99}
	r.Service = r.Response
	r.Service.MeanMS -= mean
	r.Service.P50MS -= mean
	r.Service.P99MS -= p99
	return r
}

// A latency is not ranked at a level where that of any competitor is mostly
// delay: the best, the worst or one between.
func TestDelayExplains(t *testing.T) {
	for _, name := range []string{"rr", "lc", "sed"} {
		draw := noisy(1, 0.02, map[string]float64{"lc": 0.5, "sed": 1})
		rep := made{load: "rates: [1000], duration: 2 s", competitors: two, blocks: 8, result: func(c record.Cell, block int) *load.Result {
			r := draw(c, block)
			share := 0.1
			if c.Name == name {
				share = 0.6
			}
			return delayedBy(r, 0.1*r.Response.MeanMS, share*r.Response.P99MS)
		}}.report(t)
		row := rep.Sections[0].Rows[0]
		for _, c := range row.Cells {
			if c.explained(tail) != (c.Name == name) || c.explained("response_time") || c.explained("throughput") {
				t.Errorf("%s: 99th percentile explained %v, mean %v", c.Name, c.explained(tail), c.explained("response_time"))
			}
			if c.RankedBy(tail) || !c.RankedBy("response_time") || !c.Ranked() {
				t.Errorf("%s: ranked by the 99th percentile %v, by the mean %v", c.Name, c.RankedBy(tail), c.RankedBy("response_time"))
			}
		}
		if _, judged := row.Comparisons[tail]; judged || len(row.Comparisons["response_time"].Ranking) != 3 {
			t.Errorf("judged: %v", row.Comparisons)
		}
		i := slices.IndexFunc(row.Causes, func(c Cause) bool { return c.Kind == GeneratorDelay })
		if i < 0 || !slices.Equal(row.Causes[i].Cells, []string{name}) {
			t.Fatalf("%+v", row.Causes)
		}
		wants(t, text(t, rep), "Not measurable here: "+name+" (generator delay: response time, 99th percentile is not ranked, "+
			"as the generator's own delay at the same statistic is 60 % of it at "+name+").")
	}
}

// Most of the runs decide, not one.
func TestDelayOfOneRunExplainsNothing(t *testing.T) {
	for _, tc := range []struct {
		runs int // with delay, of 8
		want bool
	}{{0, false}, {1, false}, {3, false}, {5, true}, {8, true}} {
		draw := noisy(1, 0.02, nil)
		rep := made{load: "rates: [1000], duration: 2 s", competitors: two, blocks: 8, result: func(c record.Cell, block int) *load.Result {
			r := draw(c, block)
			if block <= tc.runs {
				return delayedBy(r, 0.9*r.Response.MeanMS, 0.9*r.Response.P99MS)
			}
			return delayedBy(r, 0, 0)
		}}.report(t)
		if row := rep.Sections[0].Rows[0]; row.delayed("response_time") != tc.want || row.Cells[0].explained("response_time") != tc.want {
			t.Errorf("delay in %d of 8 runs: explained %v, want %v", tc.runs, !tc.want, tc.want)
		}
	}
}

// A difference that is the generator's is not there without its delay.
func TestUndelayed(t *testing.T) {
	rep := made{load: "rates: [1000], duration: 2 s", competitors: two, blocks: 6, result: func(c record.Cell, block int) *load.Result {
		r := clean(c, 1, 5, 1)
		if c.Name == "lc" {
			r = clean(c, 1.25, 6, 1)
			return delayedBy(r, 0.25, 1)
		}
		return r // of a tool that starts its clock when it starts a request
	}}.report(t)
	cells := rep.Sections[0].Rows[0].Cells
	for key, want := range map[string]float64{"response_time": 1, "response_time_p50": 1, tail: 5} {
		for _, c := range cells {
			if got := c.undelayed(key).Values; len(got) != 6 || got[0] != want || got[5] != want {
				t.Errorf("%s of %s without delay: %v, want %g", key, c.Name, got, want)
			}
		}
	}
	if s, all := cells[1].undelayed("throughput"), cells[1].series("throughput"); !slices.Equal(s.Values, all.Values) {
		t.Errorf("throughput without delay: %v, want %v", s.Values, all.Values)
	}
	if got := cells[1].blocks["generator_delay_p99"]; len(got) != 6 || got[2] != 1 {
		t.Errorf("delay by block: %v", got)
	}
	if share, ok := cells[1].delayShare("response_time"); !ok || share != 0.2 {
		t.Errorf("share %g, %v, want 0.2", share, ok)
	}
	if _, ok := cells[0].delayShare("response_time"); ok {
		t.Error("a tool that does not report its delay has a share of it")
	}
}

// Delay stands beside every latency, in the text and in the files.
func TestDelayStandsBesideLatency(t *testing.T) {
	rep := made{load: "rates: [1000], duration: 2 s", competitors: two, blocks: 6, result: func(c record.Cell, _ int) *load.Result {
		return delayedBy(clean(c, 1, 5, 1), 0.123, 0.456)
	}}.report(t)
	got := text(t, rep)
	for key, want := range map[string][]string{
		"response_time": {"generator delay, mean [ms]", "0.123"}, "response_time_p50": {"generator delay, median [ms]", "0.123"},
		tail: {"generator delay, 99th percentile [ms]", "0.456", "generator delay, maximum [ms]", "0.912"},
	} {
		var b bytes.Buffer
		if err := rep.metricCSV(&b, metric(key)); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(&b).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(want); i += 2 {
			if at := slices.Index(rows[0], want[i]); at < 0 || rows[1][at] != want[i+1] {
				t.Errorf("%s.csv: %v, want %s in the column %q", key, rows[1], want[i+1], want[i])
			}
		}
		_, table, _ := strings.Cut(got, metric(key).Title+" [ms]")
		table, _, _ = strings.Cut(table, "\n\n")
		if !strings.Contains(table, "  delay ") || !strings.Contains(table, want[1]) {
			t.Errorf("the table of %s has no delay %s:\n%s", key, want[1], table)
		}
	}
	if n := strings.Count(got, "Generator delay"); n > 0 {
		t.Errorf("%d tables of their own, want none", n)
	}
}
