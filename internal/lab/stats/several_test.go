// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHochberg(t *testing.T) {
	for _, c := range []struct {
		p    []float64
		want []bool
	}{
		{nil, []bool{}},
		{[]float64{0.05}, []bool{true}},
		{[]float64{0.04, 0.05, 0.03}, []bool{true, true, true}}, // the same everywhere
		{[]float64{0.04, 0.6, 0.7}, []bool{false, false, false}},
		{[]float64{0.01, 0.6, 0.7}, []bool{true, false, false}},
		{[]float64{0.02, 0.6, 0.025}, []bool{true, false, true}},
		{[]float64{0.02, 0.6, 0.026}, []bool{false, false, false}},
	} {
		if diff := cmp.Diff(c.want, Hochberg(c.p, 0.05)); diff != "" {
			t.Errorf("%v: %s", c.p, diff)
		}
	}
}

// Of questions to which nothing is the answer, any is claimed in one study of
// twenty.
func TestHochbergErrsAsRarelyAsItSays(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const studies = 20000
	errors := 0
	for range studies {
		p := make([]float64, 9)
		for i := range p {
			p[i] = rng.Float64()
		}
		for _, claimed := range Hochberg(p, 0.05) {
			if claimed {
				errors++
				break
			}
		}
	}
	if got := float64(errors) / studies; math.Abs(got-0.05) > 3*math.Sqrt(0.05*0.95/studies)+0.001 {
		t.Errorf("a false claim in %.4f of the studies, want 0.05", got)
	}
}
