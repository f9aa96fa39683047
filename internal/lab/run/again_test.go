// SPDX-License-Identifier: Apache-2.0

package run

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
)

// A late run is measured again, once; not where the generator is always late.
func TestLateRunsAreMeasuredAgain(t *testing.T) {
	cell := func(name string) record.Cell { return record.Cell{Competitor: record.Competitor{Name: name}} }
	sample := func(name string, block, again int, late bool) record.Sample {
		return record.Sample{Cell: cell(name), Block: block, Again: again, Load: &load.Result{Generator: load.Generator{Behind: late}}}
	}
	cells := []record.Cell{cell("sound"), cell("once"), cell("always"), cell("both"), cell("failed")}
	l := &lab{samples: []record.Sample{
		sample("sound", 1, 0, false), sample("once", 1, 0, false), sample("always", 1, 0, true), sample("both", 1, 0, true),
		sample("always", 1, 1, true), sample("both", 1, 1, false), {Cell: cell("failed"), Block: 1, Error: "gone"},
		sample("sound", 2, 0, false), sample("once", 2, 0, true), sample("always", 2, 0, true), sample("both", 2, 0, true),
	}}
	l.config.Plan.Again = true
	for b, want := range [][]string{nil, {"once", "both"}} {
		var got []string
		for _, c := range l.again(b, cells) {
			got = append(got, c.Name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("block %d (-want +got):\n%s", b, diff)
		}
	}
	kept, late := record.Kept(l.samples)
	if len(late) != 2 || late[0].Name != "always" || late[1].Name != "both" || late[0].Again != 0 || len(kept) != len(l.samples)-2 {
		t.Errorf("late: %+v; kept %d", late, len(kept))
	}
	l.config.Plan.Again = false
	if got := l.again(1, cells); got != nil {
		t.Errorf("measured again against the plan: %v", got)
	}
}
