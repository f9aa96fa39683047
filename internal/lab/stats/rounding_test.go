// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"testing"
)

// Figures of 30 ms in steps of 10 ms are neither equal within 2 % nor different
// from 40 ms; in steps of 0.01 ms they are both.
func TestRoundedFiguresAreNotClaimed(t *testing.T) {
	series := func(step float64) (list []Series) {
		most := []float64{step / 2, step / 2, step / 2, step / 2, step / 2, step / 2, step / 2, step / 2}
		for name, values := range map[string][]float64{
			"a": {30, 30, 30, 30, 30, 30, 30, 30}, "b": {30, 30, 30, 30, 30, 30, 30, 30}, "c": {40, 40, 40, 40, 40, 40, 40, 40},
		} {
			list = append(list, Series{Name: name, Values: values, Rounding: RoundingOf(values, most)})
		}
		return list
	}
	finding := func(v Verdict, a, b string) Pair {
		for _, p := range v.Pairs {
			if p.A == a && p.B == b || p.A == b && p.B == a {
				return p
			}
		}
		t.Fatalf("no pair of %s and %s in %+v", a, b, v)
		return Pair{}
	}
	fine, coarse := Judge(series(0.01), NewQuestion(true)), Judge(series(10), NewQuestion(true))
	if p := finding(fine, "a", "b"); p.Finding != Equal {
		t.Errorf("30 and 30 ms to 0.01 ms: %+v", p)
	}
	if p := finding(fine, "a", "c"); p.Finding != Different {
		t.Errorf("30 and 40 ms to 0.01 ms: %+v", p)
	}
	for _, pair := range [][2]string{{"a", "b"}, {"a", "c"}} {
		p := finding(coarse, pair[0], pair[1])
		if p.Finding != Unclear || p.P != 1 || p.PVariants[underRounding] != 1 || p.Joint.Low > 0 || p.Joint.High < 0 {
			t.Errorf("%v to 10 ms: %+v", pair, p)
		}
	}
}

func TestRoundingOf(t *testing.T) {
	if got, want := RoundingOf([]float64{10, math.NaN(), 20}, []float64{1, 1, 1}), -(math.Log(0.9)+math.Log(0.95))/2; math.Abs(got-want) > 1e-12 {
		t.Errorf("%g, want %g", got, want)
	}
	if got := RoundingOf(nil, nil); got != 0 {
		t.Errorf("%g of nothing", got)
	}
}
