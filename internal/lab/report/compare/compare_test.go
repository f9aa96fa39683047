// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
	"imbang/internal/lab/report"
	"imbang/internal/lab/study"
)

const someStudy = `name: some
title: Two
cluster: {client_namespaces: 1, client_addresses: 1, servers: [{kind: nginx, count: 2, page: 375 B}]}
load: {rates: [%s], connections: 1000, timeout: 5 s}
competitors:
  - {engine: imbang, schedulers: [%s]}
repeats: {least: 6}
`

// run is a stored run whose response times are those that mean gives [ms].
func run(t *testing.T, rates, schedulers string, blocks int, mean func(name string, rate float64) float64) *record.Run {
	t.Helper()
	text := fmt.Sprintf(someStudy, rates, schedulers)
	s, err := study.Parse("some.yaml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	plan := record.Plan{Repeats: blocks, Connections: 1000, Seed: 7}
	for _, c := range s.Competitors {
		plan.Competitors = append(plan.Competitors, record.Competitor(c))
	}
	for _, rate := range s.Load.Rates {
		plan.Conditions = append(plan.Conditions, record.Condition{Family: "ipv4", Call: "page", Tool: study.BuiltIn, Arrivals: "constant", Rate: rate})
	}
	out := &record.Run{Environment: record.Environment{
		Study: "some.yaml", StudyText: text, Plan: plan, Started: time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC),
		Imbang: "1.0", Kernel: "6.18.0", CPU: "some CPU", CPUs: 2, Programs: map[string]string{"nginx": "1.22"},
	}}
	for b := 1; b <= blocks; b++ {
		for i, condition := range plan.Conditions {
			for j, c := range plan.Competitors {
				v := mean(c.Name, condition.Rate) * (1 + 0.01*float64((b*(2+i)+3*j)%5))
				r := &load.Result{
					AskedRate: condition.Rate, OfferedRate: condition.Rate, IssuedRate: condition.Rate, ReplyRate: condition.Rate, NetIOKBs: condition.Rate * 0.68,
					Scheduled: 1000, Issued: 1000, Replies: 1000, Status: load.Status{Success: 1000}, PerServer: map[string]int{"s1": 500, "s2": 500},
					Response: load.Latency{Count: 1000, MeanMS: v, P50MS: v * 0.9, P99MS: v * 5},
				}
				out.Samples = append(out.Samples, record.Sample{Cell: record.Cell{Competitor: c, Condition: condition}, Block: b, Load: r, CalibrationNS: 5 * time.Millisecond})
			}
		}
	}
	return out
}

func one(string, float64) float64 { return 1 }

func compared2(t *testing.T, a, b *record.Run) (*Comparison, error) {
	t.Helper()
	var reps []*report.Report
	for _, r := range []*record.Run{a, b} {
		rep, err := report.New(r)
		if err != nil {
			t.Fatal(err)
		}
		reps = append(reps, rep)
	}
	return New(reps[0], reps[1])
}

func TestCompare(t *testing.T) {
	a := run(t, "2000, 8000, 14000", "rr, lc, sh", 6, one)
	b := run(t, "2000, 8000", "rr, lc, nq", 8, func(name string, rate float64) float64 {
		if name == "lc" && rate == 8000 {
			return 1.5
		}
		return 1
	})
	env := &b.Environment
	env.Kernel, env.Imbang, env.Programs = "6.1.0", "2.0", map[string]string{"nginx": "1.22", "haproxy": "2.6"}
	env.Plan.Connections = 20000
	a.Environment.Configurations = map[string]string{"rr": "attach\n-w 1", "lc": "attach", "sh": "attach"}
	env.Configurations = map[string]string{"rr": "attach\n-w 2", "lc": "attach", "nq": "attach"}
	for i := range b.Samples {
		b.Samples[i].CalibrationNS = 6 * time.Millisecond
		if s := &b.Samples[i]; s.Name == "rr" && s.Rate == 8000 {
			s.Load.Loss.Timeout, s.Load.Replies, s.Load.Status.Success = 10, 990, 990
		}
	}
	c, err := compared2(t, a, b)
	if err != nil {
		t.Fatal(err)
	}
	c.A.Dir, c.B.Dir = "results/a", "results/b"
	var got bytes.Buffer
	if err := c.Text(&got); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"A: results/a, some, 2026-01-02 03:04 UTC, 54 runs\n",
		"Response time, mean: B differs from A in 1 of 3 cells (lc at 8000/s +50.0 %);",
		"Throughput: B differs from A in none of 3 cells; 3 equal within the margin.",
		"  rr at 8000/s: B: requests ", // lost
		"  rr at 8000/s: 0 of 6000 in A, 80 of 8000 in B\n",
		"Only in A: sh at 2000/s; sh at 8000/s; rr at 14000/s; lc at 14000/s; sh at 14000/s\n",
		"Only in B: nq at 2000/s; nq at 8000/s\n",
	} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("%s\nwants %q", got.String(), want)
		}
	}
	for _, want := range []Change{
		{"kernel", "6.18.0", "6.1.0"}, {"imbang", "1.0", "2.0"}, {"haproxy", "-", "2.6"}, {"connections a run", "1000", "20000"}, {"runs a cell", "6", "8"},
		{"text of the study", "as stored", `another: line 4 is "load: {rates: [2000, 8000], connections: 1000, timeout: 5 s}"`},
		{"machine's speed, by a fixed loop", "5.00 ms", "6.00 ms (+20.0 %)"},
		{"configuration of rr", "as stored", `another: line 2 is "-w 2"`},
	} {
		if !slices.Contains(c.Environment, want) {
			t.Errorf("%v\nwants %v", c.Environment, want)
		}
	}
	if len(c.Environment) != 8 {
		t.Errorf("names %d changes, want 8: %v", len(c.Environment), c.Environment)
	}
	b2, err := json.Marshal(c)
	if err != nil || !bytes.Contains(b2, []byte(`"finding":"different"`)) || !bytes.Contains(b2, []byte(`"competitor":"lc"`)) {
		t.Errorf("%v: %s", err, b2)
	}
}

// A run is like itself.
func TestCompareWithItself(t *testing.T) {
	c, err := compared2(t, run(t, "2000", "rr, lc", 6, one), run(t, "2000", "rr, lc", 6, one))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Environment)+len(c.OnlyA)+len(c.OnlyB)+len(c.NotCompared) > 0 {
		t.Errorf("%+v", c)
	}
	for _, m := range c.Metrics {
		for _, x := range m.Cells {
			if x.Difference != 0 || x.Finding == "different" || x.MedianA != x.MedianB {
				t.Errorf("%s: %+v", m.Key, x)
			}
		}
	}
}

func TestTooFewRuns(t *testing.T) {
	c, err := compared2(t, run(t, "2000", "rr", 2, one), run(t, "2000", "rr", 6, func(string, float64) float64 { return 9 }))
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := c.Text(&got); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Response time, mean: no verdict on 1, which have fewer than 5 runs in A or B.", "2 and 6 runs: too few"} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("%s\nwants %q", got.String(), want)
		}
	}
}

func TestRefusals(t *testing.T) {
	if _, err := compared2(t, run(t, "2000", "rr", 6, one), run(t, "4000", "rr", 6, one)); err == nil ||
		!strings.Contains(err.Error(), "share no cell") || !strings.Contains(err.Error(), "rr at 4000/s of study some") {
		t.Errorf("no cell in common: %v", err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ a, b, want string }{
		{filepath.Join(dir, "nowhere"), dir, "nowhere: no such file or directory"},
		{file, dir, "is a file: name the directory of a run"},
		{dir, file, "is " + dir + " the directory of a run?"},
	} {
		if _, err := Dirs(c.a, c.b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s and %s: %v, want %q", c.a, c.b, err, c.want)
		}
	}
}
