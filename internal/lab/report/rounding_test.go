// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"testing"

	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
	"imbang/internal/lab/stats"
	"imbang/internal/lab/study"
)

// What siege prints to 10 ms is neither equal within 2 % nor different by a step;
// the same figures of the built-in generator are.
func TestPrintedDigitsLimitClaims(t *testing.T) {
	for tool, want := range map[string][2]stats.Finding{
		study.BuiltIn: {stats.Equal, stats.Different}, "siege": {stats.Unclear, stats.Unclear},
	} {
		means := map[string]float64{"rr": 30, "lc": 30, "sed": 40}
		rep := made{load: "users: [50], duration: 2 s, tools: [" + tool + "]", competitors: "  - {engine: imbang, schedulers: [rr, lc, sed]}", blocks: 8,
			result: func(c record.Cell, _ int) *load.Result {
				r := clean(c, means[c.Name], 90, 1)
				r.Tool, r.ReplyRate, r.WindowSeconds = c.Tool, 1300, 0.75
				return r
			}}.report(t)
		for _, p := range rep.Sections[0].Rows[0].Comparisons["response_time"].Pairs {
			finding := want[1]
			if p.A != "sed" && p.B != "sed" {
				finding = want[0]
			}
			if p.Finding != finding {
				t.Errorf("%s: %+v, want %q", tool, p, finding)
			}
		}
	}
}

func TestRoundingOfTools(t *testing.T) {
	r := &load.Result{ReplyRate: 20000, WindowSeconds: 0.005, NetIOKBs: 376.2, Response: load.Latency{MeanMS: 9.1, P99MS: 2}}
	for _, c := range []struct {
		tool, metric string
		want         float64
	}{
		{"ab", "reply_rate", 2000}, {"ab", "response_time", 0}, {"ab", tail, 0.5},
		{"httperf", "response_time", 0.1}, {"httperf", "throughput", 0.05},
		{"siege", "response_time", 5}, {"siege", "reply_rate", 20000},
		{"wrk", "reply_rate", 20000}, {study.BuiltIn, "response_time", 0}, {study.BuiltIn, tail, 0},
	} {
		s := record.Sample{Cell: record.Cell{Condition: record.Condition{Tool: c.tool}}, Load: r}
		if got := rounding(c.metric, s); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s of %s: %g, want %g", c.metric, c.tool, got, c.want)
		}
	}
}

// wrk adds response times that it has not measured.
func TestResponseTimesOfWrk(t *testing.T) {
	for tool, want := range map[string]bool{"wrk": false, "ab": true} {
		s := record.Sample{Cell: record.Cell{Condition: record.Condition{Tool: tool}}, Load: &load.Result{Replies: 1, Response: load.Latency{MeanMS: 1, P50MS: 1, P99MS: 1}}}
		for _, key := range []string{"response_time", "response_time_p50", tail} {
			if _, has := metric(key).value(s); has != want {
				t.Errorf("%s of %s is used: %v", key, tool, has)
			}
		}
	}
}

// The rate of echo requests is that of the pause between them, and ranks nothing.
func TestRateOfPingIsNotJudged(t *testing.T) {
	run := made{load: "users: [1], duration: 2 s", competitors: someCompetitors, blocks: 7,
		result: func(c record.Cell, _ int) *load.Result { return clean(c, 1, 5, 1) }}.run(t)
	for i := range run.Samples {
		run.Samples[i].Tool, run.Samples[i].Load.ReplyRate = study.Ping, 102
	}
	for i := range run.Environment.Plan.Conditions {
		run.Environment.Plan.Conditions[i].Tool = study.Ping
	}
	rep, err := New(run)
	if err != nil {
		t.Fatal(err)
	}
	row := rep.Sections[0].Rows[0]
	if _, judged := row.Comparisons["reply_rate"]; judged || len(row.Comparisons["response_time"].Pairs) != 1 {
		t.Errorf("%+v", row.Comparisons)
	}
}
