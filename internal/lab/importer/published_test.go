// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The published tables and the logs of the thesis disagree in these cells and
// no other; worked out by hand from the texts.
func TestThesisDisagreements(t *testing.T) {
	c := New(thesis(t), thesisStudy(t)).Comparison
	want := []Disagreement{
		{"Table 4.1", "throughput", 14000, "dh", 220.7, 65.1, "KB/s", "no log given has it"},
		{"Table 4.2", "response_time", 2000, "sed", 763.6, 763.8, "ms", "one digit differs"},
		{"Table 4.2", "response_time", 8000, "lblcr", 708.9, 780.9, "ms", "two digits are exchanged"},
		{"Table 4.2", "response_time", 8000, "dh", 872.7, 483.5, "ms", "no log given has it"},
		{"Table 4.2", "response_time", 14000, "dh", 483.5, 374.2, "ms", "it is the log's figure of dh at 8000/s"},
	}
	if diff := cmp.Diff(want, c.Disagreements); diff != "" {
		t.Error(diff)
	}
	if c.Compared != 60 || c.Agreeing != 55 || len(c.Missing) != 0 {
		t.Errorf("%d compared, %d agree, missing %v", c.Compared, c.Agreeing, c.Missing)
	}
}

// The published response time is the first part of httperf's reply time.
func TestThesisResponseTime(t *testing.T) {
	c := New(thesis(t), thesisStudy(t)).Comparison
	want := map[string]int{
		"reply time, response": 26, "reply time, response + transfer": 26, // transfer is 0.0 in every log
		"connection time, avg": 0, "connection time, median": 0, "connection time, connect": 0,
	}
	if diff := cmp.Diff(want, c.Agreement); diff != "" {
		t.Error(diff)
	}
	if !strings.HasPrefix(c.Response, `httperf's "reply time, response", which agrees in 26 of 30 cells`) {
		t.Error(c.Response)
	}
}

// No log of the thesis contradicts itself.
func TestThesisLogsAreWhole(t *testing.T) {
	for _, r := range thesis(t) {
		if len(r.Contradictions) > 0 {
			t.Errorf("%s: %v", r.File, r.Contradictions)
		}
		if *r.Connections+r.Errors["fd-unavail"] != 20000 {
			t.Errorf("%s: %d begun and %d not", r.File, *r.Connections, r.Errors["fd-unavail"])
		}
	}
}

func TestPublishedIsRecognised(t *testing.T) {
	s := thesisStudy(t)
	runs := thesis(t)
	if !Published(runs, s) {
		t.Error("the logs of the thesis are not recognised")
	}
	for what, change := range map[string]func(*Result){
		"another address":    func(r *Result) { r.Target = "10.0.0.1:80/" },
		"another scheduler":  func(r *Result) { r.File = "wdh-2000.txt" },
		"a rate of its own":  func(r *Result) { r.File, *r.Asked.Rate = "rr-2500.txt", 2500 },
		"files without cell": nil,
	} {
		runs := thesis(t)
		if change != nil {
			change(&runs[7])
		} else {
			for i := range runs {
				runs[i].File = "run.txt"
			}
		}
		if Published(runs, s) {
			t.Errorf("%s: recognised", what)
		}
	}
}

func TestSeveralRunsOfACell(t *testing.T) {
	log := text(t, "thesis/dh-14000.txt")
	edited := strings.Replace(log, "Net I/O: 65.1", "Net I/O: 230.0", 1)
	runs, err := Parse(strings.NewReader(log+edited+log), "dh-14000.txt")
	if err != nil {
		t.Fatal(err)
	}
	rep := New(runs, thesisStudy(t))
	c := rep.Tables[0].Rows[0].Cells[0]
	if c.N != 3 || c.Median != 65.1 || c.Max != 230 || c.Differs { // 220.7 is within the range
		t.Errorf("%+v", c)
	}
	if len(rep.Comparison.Missing) != 29 {
		t.Errorf("%d cells missing, want 29", len(rep.Comparison.Missing))
	}
}
