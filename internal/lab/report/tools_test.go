// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"

	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
)

const someCompetitors = "  - {engine: imbang, schedulers: [rr, lc]}"

// What tools report of one load stands side by side, the built-in generator
// first; a tool without the figure has none.
func TestToolsAreCompared(t *testing.T) {
	rep := made{load: "rates: [1000, 2000], tools: [built-in, httperf], duration: 1 s", competitors: someCompetitors, blocks: 6, result: func(c record.Cell, _ int) *load.Result {
		r := clean(c, 4, 9, 1)
		if c.Tool == "httperf" {
			r.Tool, r.Response.MeanMS = "httperf", 3
			if c.Name == "lc" {
				r.Absent = []string{"response.mean_ms"}
			}
		}
		return r
	}}.report(t)
	if len(rep.Tools) != 2 {
		t.Fatalf("%d tables, want one for each rate: %+v", len(rep.Tools), rep.Tools)
	}
	table := rep.Tools[1]
	if table.Title != "2000/s" || strings.Join(table.Columns, " ") != "rr lc" || len(table.Rows) != 4 {
		t.Fatalf("%+v", table)
	}
	for _, r := range table.Rows {
		want := map[string][2]string{
			"built-in reply_rate": {"2000.00 2000.00", ""}, "httperf reply_rate": {"2000.00 2000.00", "1.00 1.00"},
			"built-in response_time": {"4.00 4.00", ""}, "httperf response_time": {"3.00 -", "0.75 -"},
		}[r.Tool+" "+r.Metric]
		if got := [2]string{strings.Join(r.figures(), " "), strings.Join(r.multiples(), " ")}; got != want {
			t.Errorf("%s %s: %q, want %q", r.Tool, r.Metric, got, want)
		}
	}
	wants(t, text(t, rep), "== Tools: medians of the same load by tool", "httperf: Response time, mean [ms]")
}

func TestOneToolIsNotCompared(t *testing.T) {
	rep := made{load: "rates: [1000, 2000], duration: 1 s", competitors: someCompetitors, blocks: 6,
		result: func(c record.Cell, _ int) *load.Result { return clean(c, 4, 9, 1) }}.report(t)
	if len(rep.Tools) != 0 || strings.Contains(text(t, rep), "== Tools") {
		t.Errorf("%+v, want none", rep.Tools)
	}
}
