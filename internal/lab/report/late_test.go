// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"slices"
	"testing"

	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
)

// lateIn makes lc's runs of some blocks late, for a reason that is or is not a
// limit of the client.
func lateIn(blocks []int, cpu bool) func(record.Cell, int) *load.Result {
	draw := noisy(1, 0.03, nil)
	return func(c record.Cell, block int) *load.Result {
		r := draw(c, block)
		if c.Name == "lc" && slices.Contains(blocks, block) {
			r.Generator.Behind, r.Generator.Reason = true, "issued 900 of 1000 requests/s: why"
			if cpu {
				r.Generator.BusyShare = 0.95
			}
		}
		return r
	}
}

// A late run is kept, marked, and ranked: both series are there, with it and
// without.
func TestLateRunsAreKept(t *testing.T) {
	for _, cpu := range []bool{false, true} {
		rep := made{load: "rates: [1000], duration: 2 s", competitors: two, blocks: 8, result: lateIn([]int{2, 5}, cpu)}.report(t)
		c := rep.Sections[0].Rows[0].Cells[1]
		if !c.Ranked() || len(c.Causes) > 0 || c.Runs != 8 || c.Marks.Behind != 2 || !slices.Equal(c.Late, []int{2, 5}) {
			t.Fatalf("CPU %v: %d runs, %+v, late in %v, causes %+v", cpu, c.Runs, c.Marks, c.Late, c.Causes)
		}
		for _, key := range []string{"response_time", "reply_rate"} {
			all, onTime := c.series(key).Values, c.onTime(key).Values
			if len(all) != 8 || len(onTime) != 8 {
				t.Fatalf("%s: %d and %d blocks", key, len(all), len(onTime))
			}
			for i := range all {
				late := i == 1 || i == 4
				if c.lateBlock(i+1) != late || math.IsNaN(all[i]) || math.IsNaN(onTime[i]) != late || !late && all[i] != onTime[i] {
					t.Errorf("%s, block %d: %g, on time %g", key, i+1, all[i], onTime[i])
				}
			}
		}
		wants(t, text(t, rep), "†", "The generator was late in 2 runs (such as lc at 1000/s: issued 900 of 1000 requests/s: why)")
	}
}

// Where every run was late, nothing is left without them.
func TestAllRunsLate(t *testing.T) {
	for cpu, kind := range map[bool]Kind{false: GeneratorBehind, true: ClientSaturated} {
		rep := made{load: "rates: [1000], duration: 2 s", competitors: two, blocks: 3, result: lateIn([]int{1, 2, 3}, cpu)}.report(t)
		c := rep.Sections[0].Rows[0].Cells[1]
		if c.Ranked() || len(c.Causes) != 1 || c.Causes[0].Kind != kind {
			t.Errorf("CPU %v: %+v", cpu, c.Causes)
		}
	}
}

// Requests that the client did not send are missing from its figures: one such
// run excludes the cell.
func TestOneUnsentRunExcludes(t *testing.T) {
	draw := noisy(1, 0.03, nil)
	rep := made{load: "rates: [1000], duration: 2 s", competitors: two, blocks: 8, result: func(c record.Cell, block int) *load.Result {
		r := draw(c, block)
		if c.Name == "lc" && block == 3 {
			r.Loss.Client.Descriptors, r.Generator.DescriptorLimit = 7, 64
			r.Generator.Behind, r.Generator.Reason = true, "issued 993 of 1000 requests/s: descriptor limit 64"
		}
		return r
	}}.report(t)
	if c := rep.Sections[0].Rows[0].Cells[1]; c.Ranked() || len(c.Causes) != 1 || c.Causes[0].Kind != ClientSaturated ||
		c.Causes[0].Text != "in 1 of 8 runs: issued 993 of 1000 requests/s: descriptor limit 64" {
		t.Errorf("%+v", c.Causes)
	}
}

// Earlier versions measured late cells once more. The report says that those
// runs are not used.
func TestRepeatedRunsAreNamed(t *testing.T) {
	run := made{load: "rates: [1000], duration: 2 s", competitors: two, blocks: 6, result: noisy(1, 0.03, nil)}.run(t)
	run.Repeated = run.Samples[:2]
	rep, err := New(run)
	if err != nil {
		t.Fatal(err)
	}
	if rep.Measured != 18 {
		t.Errorf("%d measured, want 18", rep.Measured)
	}
	wants(t, text(t, rep), "measured 2 cells once more at the end of their block", "The first run counts")
}
