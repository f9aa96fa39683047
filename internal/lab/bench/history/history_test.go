// SPDX-License-Identifier: Apache-2.0

package history

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"imbang/internal/lab/measure"
)

// The committed page is what the committed history yields.
func TestPageIsOfTheHistory(t *testing.T) {
	runs, err := Read("../../../../docs/bench/history.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	want, err := Page(runs)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/performance.md is not of docs/bench/history.jsonl: imbang bench page >docs/performance.md")
	}
}

// run is one as the suite writes it.
func run(commit string, quick bool, parts ...Part) Run {
	return Run{Command: "imbang bench", Quick: quick, Parts: parts, Environment: Environment{
		Date: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), Version: "v1", Commit: commit, Go: "go1", Host: measure.Host{Kernel: "6.18", CPU: "CPU", CPUs: 2},
	}}
}

func TestHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h.jsonl")
	want := []Run{run("a", false, Part{Name: "x", Command: "imbang bench x", Result: []byte(`{"a":1}`)}), run("b", true)}
	for _, r := range want {
		if err := Append(path, r); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := Read(path); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\n got %+v\nwant %+v", err, got, want)
	}
	if err := os.WriteFile(path, []byte("{}\n{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("a broken line: %v", err)
	}
	if got, err := Read(path + "none"); got != nil || err != nil {
		t.Errorf("no file: %v, %v", got, err)
	}
}

const result = `{"flows":7,"rate":{"n":3,"median":12.34,"min":10,"max":20},
"costs":[{"name":"a|b","over":{"direct":{"n":2,"median":0.5,"min":0.4,"max":0.6}},"over_interval":{"direct":{"low":0,"high":1,"level":0.5}}},{"name":"c","ok":true}],
"targets":[{"name":"t","at_most":1,"value":{"n":2,"median":0.5,"min":0.4,"max":0.6},"met":true},
{"name":"v","at_most":1,"value":{"n":2,"median":0.5,"min":0.4,"max":0.6},"interval":{"low":0.45,"high":0.55,"level":0.96},"met":true},
{"name":"u","unit":"ms","at_least":9,"value":{"n":1,"median":8,"min":8,"max":8},"met":false}]}`

// A part's figures, its tables and its targets are on the page, and the course
// of the targets where whole runs are several.
func TestPage(t *testing.T) {
	part := Part{Name: "some", Command: "imbang bench some", Result: []byte(result), LoopMS: [2]float64{8, 9}, LoadAverage: 0.5}
	page, err := Page([]Run{run("older", false, part), run("newest", false, part), run("quick", true, part),
		run("cut", false, Part{Name: "some", Status: 3, Result: part.Result}), run("none", false, Part{Name: "some", Error: "failed"})})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"## Some\n\n`imbang bench some`, series 1, 2026-11-22, version v1 (newest), Linux 6.18, CPU, 2 CPUs; a load of 0.5 before it, and a fixed loop of 8.0 ms, behind it 9.0.\n",
		"| flows | 7 |\n| rate | 12.3 (10.0 to 20.0) |\n",
		"costs:\n\n| name | over direct | ok |\n| --- | --- | --- |\n| a\\|b | 0.500 (0.400 to 0.600) |  |\n| c |  | yes |\n",
		"| t | at most 1 | 0.500 (0.400 to 0.600) | met |\n| v | at most 1 | 0.500 (0.450 to 0.550) | met |\n| u | at least 9 ms | 8.00 | missed |\n",
		"Over time; figures of different series are not comparable:\n\n| series | date | version | CPU | load | fixed loop [ms] | t | v | u |\n",
		"| 1 | 2026-11-22 | v1 (older) | CPU | 0.5 | 8.0 | 0.500 (0.400 to 0.600) | 0.500 (0.450 to 0.550) | 8.00 |\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks\n%s", want)
		}
	}
	for _, want := range []string{"| v1 (cut) | CPU | 0.0 | 0.0 | failed, exit status 3 |  |  |", "| v1 (none) | CPU | 0.0 | 0.0 | failed, exit status 0: failed |  |  |"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks the failed run\n%s", want)
		}
	}
	if strings.Contains(page, "(quick)") {
		t.Error("a quick run counts beside whole ones")
	}
	if t.Failed() {
		t.Log(page)
	}
}
