// SPDX-License-Identifier: Apache-2.0

package record

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Earlier versions measured a cell once more when the generator was late, and
// marked that run with "again". The run that the plan asked for counts.
func TestReadKeepsTheFirstRunOfABlock(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		EnvironmentFile: `{"study": "old.yaml", "plan": {"repeats": 2, "again": true}}`,
		SamplesFile: `{"competitor":"rr","rate":1000,"block":1,"order":1,"load":{"replies":10,"generator":{"behind":true}}}
{"competitor":"lc","rate":1000,"block":1,"order":2,"load":{"replies":20}}
{"competitor":"rr","rate":1000,"block":1,"order":3,"again":1,"load":{"replies":30}}
{"competitor":"rr","rate":2000,"block":1,"order":4,"load":{"replies":40}}
{"competitor":"rr","rate":1000,"block":2,"order":5,"load":{"replies":50}}
{"competitor":"rr","rate":1000,"blo`, // cut off
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	replies := func(samples []Sample) (list []int) {
		for _, s := range samples {
			list = append(list, s.Load.Replies)
		}
		return list
	}
	if diff := cmp.Diff([]int{10, 20, 40, 50}, replies(r.Samples)); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{30}, replies(r.Repeated)); diff != "" {
		t.Errorf("repeated (-want +got):\n%s", diff)
	}
	if !r.Samples[0].Load.Generator.Behind {
		t.Error("the late run lost its mark")
	}
}
