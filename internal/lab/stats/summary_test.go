// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestSummarize(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want Summary
	}{
		{nil, Summary{}},
		{[]float64{3}, Summary{1, 3, 3, 3}},
		{[]float64{9, 1, 4}, Summary{3, 4, 1, 9}},
		{[]float64{4, 1, 2, 9}, Summary{4, 3, 1, 9}},
	} {
		if got := Summarize(c.in); got != c.want {
			t.Errorf("Summarize(%v) = %+v, want %+v", c.in, got, c.want)
		}
	}
}

func TestSummarizeLeavesItsInput(t *testing.T) {
	in := []float64{3, 1, 2}
	Summarize(in)
	if diff := cmp.Diff([]float64{3, 1, 2}, in); diff != "" {
		t.Error(diff)
	}
}

func TestMedianLiesInTheRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOfN(rapid.Float64Range(-1e9, 1e9), 1, 20).Draw(t, "samples")
		s := Summarize(in)
		if s.Median < s.Min || s.Median > s.Max || s.N != len(in) {
			t.Fatalf("%+v of %v", s, in)
		}
	})
}
