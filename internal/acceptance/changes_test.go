// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"encoding/json"
	"strings"
	"testing"

	"imbang/internal/lab/bench"
	"imbang/internal/lab/bench/history"
)

// Changes of a small service, by the suite: every command is timed, every
// packet counted, the results are in the history, and the page shows them.
func TestBenchChanges(t *testing.T) {
	needRoot(t)
	file := t.TempDir() + "/history.jsonl"
	out := must(t, nil, "", "bench", "--quick", "--parts", "changes", "--history", file, "--output", "json")
	var run history.Run
	if err := json.Unmarshal([]byte(out), &run); err != nil {
		t.Fatal(err)
	}
	if len(run.Parts) != 1 || !run.Quick || run.Environment.Kernel == "" || !strings.HasPrefix(run.Parts[0].Command, "imbang bench changes --rounds 3") {
		t.Fatalf("%+v", run)
	}
	var r bench.ChangesResult
	if err := json.Unmarshal(run.Parts[0].Result, &r); err != nil {
		t.Fatal(err)
	}
	if err := r.Whole(); err != nil || r.Traffic.Sent == 0 {
		t.Errorf("%v: %+v", err, r.Traffic)
	}
	for _, c := range r.Changes {
		if c.MS.N != 3 || c.MS.Min <= 0 || !strings.HasPrefix(c.Command, c.Program) {
			t.Errorf("%+v", c)
		}
	}
	if len(r.Changes) != 8 || len(r.Targets) != 3 || r.Restore == nil {
		t.Errorf("%+v", r)
	}
	page := must(t, nil, "", "bench", "page", "--history", file)
	for _, want := range []string{"## Changes", run.Parts[0].Command, "| change a weight, imbang, idle | at most 15 ms | "} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	for _, args := range [][]string{{"changes", "--servers", "0"}, {"--parts", "nothing"}, {"-o", "xml"}} {
		if got := imbang(t, nil, "", append([]string{"bench"}, args...)...); got.status != 2 {
			t.Errorf("%q: %+v", args, got)
		}
	}
	if got := imbang(t, nil, "", "bench", "page", "--history", t.TempDir()+"/none"); got.status != 3 || !strings.Contains(got.stderr, "make bench") {
		t.Errorf("without a history: %+v", got)
	}
}
