// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// The distribution of U of small samples, by counting.
func TestMannWhitney(t *testing.T) {
	for _, c := range []struct {
		n, m int
		want []float64
	}{
		{1, 1, []float64{1. / 2, 1. / 2}},
		{2, 2, []float64{1. / 6, 1. / 6, 2. / 6, 1. / 6, 1. / 6}},
		{3, 1, []float64{1. / 4, 1. / 4, 1. / 4, 1. / 4}},
		{1, 2, []float64{1. / 3, 1. / 3, 1. / 3}},
	} {
		got := mannWhitney(c.n, c.m)
		for u := range got {
			if math.Abs(got[u]-c.want[u]) > 1e-12 {
				t.Errorf("%d and %d: %v, want %v", c.n, c.m, got, c.want)
				break
			}
		}
	}
	// 2 of the 924 ways to mix six with six are the farthest.
	if p := mannWhitney(6, 6)[0]; math.Abs(p-1./924) > 1e-12 {
		t.Errorf("six and six: %g, want 1/924", p)
	}
}

// runsOf draws two runs of k figures, whose blocks share a drift. The last
// figure of the second is so much greater.
func runsOf(rng *rand.Rand, k, blocks int, drift, noise, noiseB, shift float64) (a, b []Series) {
	draw := func(noise, shift float64) []Series {
		s := make([]Series, k)
		for range blocks {
			m := drift * rng.NormFloat64()
			for i := range s {
				v := m + noise*rng.NormFloat64()
				if i == k-1 {
					v += shift
				}
				s[i].Values = append(s[i].Values, math.Exp(v))
			}
		}
		for i := range s {
			s[i].Name = fmt.Sprint(i)
		}
		return s
	}
	return draw(noise, 0), draw(noiseB, shift)
}

// Of runs that are alike, few show a difference anywhere; a great difference
// is found.
func TestShifts(t *testing.T) {
	const studies = 200
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		name                 string
		k, blocks            int
		drift, noise, noiseB float64
		shift                float64
		least, most          int // of the studies that claim a difference
	}{
		{"alike", 20, 6, 0, 0.03, 0.03, 0, 0, 14},
		{"moody", 20, 6, 0.05, 0.02, 0.02, 0, 0, 14},
		{"unequal", 10, 6, 0, 0.01, 0.08, 0, 0, 24}, // 5.6 % of 2000; the others 1.9 to 4.0 %
		{"one", 1, 5, 0, 0.03, 0.03, 0, 0, 14},
		{"apart", 20, 8, 0, 0.03, 0.03, 0.25, 190, studies},
	} {
		t.Run(c.name, func(t *testing.T) {
			claims := 0
			for range studies {
				a, b := runsOf(rng, c.k, c.blocks, c.drift, c.noise, c.noiseB, c.shift)
				q := NewQuestion(true)
				q.Arrangements = few
				claimed := false
				for _, s := range Shifts(a, b, q) {
					claimed = claimed || s.Finding == Different || s.Finding == Slight
				}
				if claimed {
					claims++
				}
			}
			if claims < c.least || claims > c.most {
				t.Errorf("%d of %d studies claim a difference, want %d to %d", claims, studies, c.least, c.most)
			}
		})
	}
}

func TestShiftsOfFew(t *testing.T) {
	a := []Series{{Name: "x", Values: []float64{1, 1.01, math.NaN(), 0.99}}}
	b := []Series{{Name: "x", Values: []float64{2, 2.01, 1.99, 2}}}
	s := Shifts(a, b, NewQuestion(true))[0]
	if s.Finding != Unclear || s.BlocksA != 3 || s.BlocksB != 4 || math.Abs(s.Difference-1) > 0.03 {
		t.Errorf("%+v", s)
	}
	if s.Own.Low < 0.9 || s.Own.High > 1.1 || math.Abs(s.Own.Level-(1-2./35)) > 1e-12 {
		t.Errorf("own interval %v at %g", s.Own, s.Own.Level)
	}
	if Shifts(nil, nil, NewQuestion(true)) != nil {
		t.Error("shifts of nothing")
	}
}

func TestShiftsEqual(t *testing.T) {
	var a, b Series
	for i := range 8 {
		a.Values = append(a.Values, 100+0.1*float64(i%3))
		b.Values = append(b.Values, 100.1+0.1*float64(i%2))
	}
	if s := Shifts([]Series{a}, []Series{b}, NewQuestion(true))[0]; s.Finding != Equal {
		t.Errorf("%+v", s)
	}
}
