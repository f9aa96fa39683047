// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"math/rand/v2"
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

func TestCompare(t *testing.T) {
	g := func(s ...float64) Group { return Group{Samples: s} }
	for _, c := range []struct {
		name   string
		groups []Group
		lowest bool
		want   Verdict
		ok     bool
		apart  bool
	}{
		{"nothing", nil, true, Verdict{Leader: -1}, false, false},
		{"one group", []Group{g(1, 2)}, true, Verdict{Leader: 0}, false, false},
		{"empty groups do not count", []Group{g(), g(1, 2)}, true, Verdict{Leader: 1}, false, false},
		{"apart, but three pairs are too few to say so", []Group{g(4, 5, 6), g(1, 2, 3)}, true,
			Verdict{Leader: 1, Chance: 2.0 / 20}, true, false},
		{"apart", []Group{g(5, 6, 7, 8), g(1, 2, 3, 4)}, true, Verdict{Leader: 1, Chance: 2.0 / 70}, true, true},
		{"highest", []Group{g(5, 6, 7, 8), g(1, 2, 3, 4)}, false, Verdict{Leader: 0, Chance: 2.0 / 70}, true, true},
		{"overlapping", []Group{g(3, 6, 7, 8), g(1, 2, 3, 4), g(9, 9, 9, 9)}, true,
			Verdict{Leader: 1, Overlapping: []int{0}, Chance: 3.0 / 495}, true, false},
		{"single runs are always apart, which says nothing", []Group{g(1), g(2), g(3)}, true,
			Verdict{Leader: 0, Chance: 1}, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := Compare(c.groups, c.lowest)
			got.Chance = math.Round(got.Chance*1e9) / 1e9
			c.want.Chance = math.Round(c.want.Chance*1e9) / 1e9
			if diff := cmp.Diff(c.want, got); diff != "" || ok != c.ok {
				t.Errorf("ok %v, want %v; %s", ok, c.ok, diff)
			}
			if got.Apart() != c.apart && ok {
				t.Errorf("Apart() = %v, want %v", got.Apart(), c.apart)
			}
		})
	}
}

// The chance of luck is what dealing equal numbers at random gives.
func TestChanceMatchesSimulation(t *testing.T) {
	const trials = 20000
	rng := rand.New(rand.NewPCG(1, 2))
	apart := 0
	for range trials {
		groups := make([]Group, 4)
		for i := range groups {
			for range 3 {
				groups[i].Samples = append(groups[i].Samples, rng.Float64())
			}
		}
		if v, _ := Compare(groups, true); len(v.Overlapping) == 0 {
			apart++
		}
	}
	want := 4.0 / 220
	if got := float64(apart) / trials; math.Abs(got-want) > 0.003 {
		t.Errorf("a group of four equal ones stood apart in %.4f of deals, want %.4f", got, want)
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
