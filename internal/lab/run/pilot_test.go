// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"imbang/internal/lab/engine"
	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
	"imbang/internal/lab/study"
)

func TestJudgeCountsWhatCameWithinTheWindow(t *testing.T) {
	// 1000/s for 0.4 s, of which the last slots are beyond the window.
	result := func(within, after int) *load.Result {
		return &load.Result{
			Scheduled: 400, Replies: within + after, WindowSeconds: 0.4,
			Timeline: &load.Timeline{SlotSeconds: 0.01, Replies: map[string][]int{"s1": append(make([]int, 39), within, after)}},
		}
	}
	for name, c := range map[string]struct {
		r       *load.Result
		base    float64
		carried float64
		passed  bool
	}{
		"all in time":                    {result(400, 0), 0, 1, true},
		"4 too late":                     {result(396, 4), 0, 0.99, true},
		"5 too late":                     {result(395, 5), 0, 0.9875, false},
		"9 late, as at any moment":       {result(391, 9), 0.009, 1, true},
		"40 late, of which 15 are usual": {result(360, 40), 0.009, 0.9375, false},
	} {
		p := judge(c.r, 1000, c.base)
		if d := p.Carried - c.carried; d > 1e-9 || d < -1e-9 || p.Passed != c.passed {
			t.Errorf("%s: carried %g, passed %v; want %g, %v", name, p.Carried, p.Passed, c.carried, c.passed)
		}
	}
	lost := result(400, 0)
	lost.Loss.Reset = 1
	failed := result(400, 0)
	failed.Status.ServerError = 1
	late := result(400, 0)
	late.Generator.Behind = true
	for _, r := range []*load.Result{lost, failed, late} {
		if judge(r, 1000, 0).Passed {
			t.Errorf("%+v passed", r)
		}
	}
}

func TestLimitIsThatOfTheLowestRateThatFailed(t *testing.T) {
	cluster, generator, passed := record.Probe{Rate: 1200}, record.Probe{Rate: 1100, Behind: true}, record.Probe{Rate: 1000, Passed: true}
	for want, probes := range map[string][]record.Probe{
		record.LimitNone:      {passed, passed},
		record.LimitCluster:   {passed, cluster, cluster},
		record.LimitGenerator: {cluster, cluster, cluster, passed, generator, generator},
	} {
		if got := limit(probes, 1000); got != want {
			t.Errorf("%v: %s, want %s", probes, got, want)
		}
	}
}

const piloted = `name: piloted
cluster:
  client_namespaces: 1
  client_addresses: 10
  servers:
    - {kind: model, page: 375 B, law: constant, service: 20 ms, concurrency: 4}
load:
  fractions: [0.3, 0.9]
  duration: 200 ms
  timeout: 5 s
  tool_cells:
    - {tool: ping, requests: 3}
competitors:
  - {engine: direct}
repeats: {least: 1}
`

// A server that serves 200/s at most has that capacity, within what probes of
// a part of a second can tell; the rates follow from it, they are stored, and a
// run that goes on measures no other.
func TestPilotFindsTheCapacityOfAServer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	s, err := study.Parse("piloted.yaml", []byte(piloted), engine.Described())
	if err != nil {
		t.Fatal(err)
	}
	lab := labProgram(t)
	var c Config
	var w *watch
	var stored *record.Run
	for try := 1; ; try++ {
		c = Config{Study: s, Name: "piloted.yaml", Out: filepath.Join(t.TempDir(), "out"), Plan: NewPlan(s, false), Version: "test", Lab: lab}
		c.Plan.Warmup = 20 * time.Millisecond
		c.Plan.Quick = true // a short pilot, of all cells
		w = &watch{}
		if _, err := Run(context.Background(), c, w); err != nil {
			t.Fatal(err)
		}
		if stored, err = record.Read(c.Out); err != nil {
			t.Fatal(err)
		}
		// A busy machine stops the generator, where the pilot looks for no more, or the servers.
		if p := stored.Environment.Plan.Capacity; try == 12 || p != nil && p.Found && p.Rate >= 120 && p.Rate <= 260 && p.Limit == record.LimitCluster {
			break
		}
	}
	plan := stored.Environment.Plan
	found := plan.Capacity
	if found == nil || !found.Found || found.Rate < 120 || found.Rate > 260 || found.Limit != record.LimitCluster || len(found.Probes) > quickPilot.probes {
		t.Fatalf("capacity %+v, want about 200/s that the cluster limits", found)
	}
	for _, condition := range plan.Conditions {
		if want := significant(condition.Fraction*found.Rate, 3); condition.Fraction > 0 && condition.Rate != want {
			t.Errorf("%s: %g/s, want %g", condition, condition.Rate, want)
		}
	}
	if len(stored.Samples) != 3 {
		t.Errorf("%d samples, want 3", len(stored.Samples))
	}
	for _, sample := range stored.Samples {
		if sample.Error != "" || sample.Load.Loss.Total() > 0 {
			t.Errorf("%s: %s, %+v", sample.Cell, sample.Error, sample.Load)
		}
	}
	if plan.Pilot == nil || len(plan.Pilot.Runs) != 2*quickPilot.repeats {
		t.Errorf("pilot %+v, want %d runs of each of two levels", plan.Pilot, quickPilot.repeats)
	}
	if len(w.notes) == 0 || !strings.HasPrefix(w.notes[0], "capacity: ") {
		t.Errorf("notes %q", w.notes)
	}
	c.Resume, c.Plan = stored, plan
	again := &watch{}
	if _, err := Run(context.Background(), c, again); err != nil || len(again.notes) > 0 || len(again.ended) > 0 {
		t.Errorf("going on: %v, notes %q, %d cells; want nothing measured", err, again.notes, len(again.ended))
	}
}

// labProgram builds imbang-lab, which built-in servers are processes of.
func labProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "imbang-lab")
	if out, err := exec.Command("go", "build", "-o", path, "imbang/cmd/imbang-lab").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}
