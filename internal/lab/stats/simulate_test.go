// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// world is a truth to draw studies from: competitors whose logarithms differ by
// shift and vary by scale times noise, on a machine that drifts.
type world struct {
	k, blocks int
	noise     func(*rand.Rand) float64
	scale     func(i int) float64
	shift     func(i int) float64
	drift     float64 // of the logarithm, from block to block
	missing   float64 // share of the cells
}

func (w world) study(rng *rand.Rand) []Series {
	s := make([]Series, w.k)
	speed := 0.0
	for range w.blocks {
		speed += w.drift * rng.NormFloat64()
		for i := range s {
			v := math.Exp(speed + w.shift(i) + w.scale(i)*w.noise(rng))
			if rng.Float64() < w.missing {
				v = math.NaN()
			}
			s[i].Values = append(s[i].Values, v)
		}
	}
	for i := range s {
		s[i].Name = fmt.Sprint(i)
	}
	return s
}

// errs reports whether a verdict claims anything false: an interval that misses
// the true difference, or a difference between equals.
func (w world) errs(v Verdict) bool {
	for _, p := range v.Pairs {
		a, b := int(p.A[0]-'0'), int(p.B[0]-'0')
		truth := math.Expm1(w.shift(b) - w.shift(a))
		if truth < p.Joint.Low-1e-9 || truth > p.Joint.High+1e-9 {
			return true
		}
		if truth == 0 && (p.Finding == Different || p.Finding == Slight) {
			return true
		}
		if math.Abs(truth) > v.Smallest+1e-9 && p.Finding == Equal {
			return true
		}
	}
	return false
}

// Kinds of noise, with a middle of 0 unless skewed.
func normal(r *rand.Rand) float64  { return r.NormFloat64() }
func skewed(r *rand.Rand) float64  { return r.ExpFloat64() }
func rounded(r *rand.Rand) float64 { return math.Round(2*r.NormFloat64()) / 2 }
func longTails(r *rand.Rand) float64 { // Student's t of three degrees of freedom
	x, y, z := r.NormFloat64(), r.NormFloat64(), r.NormFloat64()
	return r.NormFloat64() / math.Sqrt((x*x+y*y+z*z)/3)
}
func spikes(r *rand.Rand) float64 { // one measurement in twenty is far off
	if r.Float64() < 0.05 {
		return 20 + r.NormFloat64()
	}
	return r.NormFloat64()
}

func same(x float64) func(int) float64 { return func(int) float64 { return x } }
func firstOf(n int, x, others float64) func(int) float64 {
	return func(i int) float64 {
		if i < n {
			return x
		}
		return others
	}
}
func everyOf(n int, x, others float64) func(int) float64 {
	return func(i int) float64 {
		if i%n == 0 {
			return x
		}
		return others
	}
}

// In at most one of twenty studies any claim is false, whatever the world.
func TestFalseClaimsAreRare(t *testing.T) {
	equal, threeFast := same(0), firstOf(3, -0.5, 0)
	steady := same(0.03)
	for name, w := range map[string]world{
		"A/A, two names":                       {2, 6, normal, steady, equal, 0, 0},
		"A/A, skewed noise":                    {2, 8, skewed, steady, equal, 0, 0},
		"A/A, the one is noisier":              {2, 7, normal, firstOf(1, 0.2, 0.02), equal, 0, 0},
		"A/A, rounded figures":                 {2, 6, rounded, steady, equal, 0, 0},
		"three equals":                         {3, 5, normal, steady, equal, 0, 0},
		"three equals, one noisier":            {3, 7, normal, firstOf(1, 0.2, 0.02), equal, 0, 0},
		"ten equals":                           {10, 5, normal, steady, equal, 0, 0},
		"ten equals, long tails":               {10, 5, longTails, steady, equal, 0, 0},
		"ten equals, skewed":                   {10, 5, skewed, same(0.5), equal, 0, 0},
		"ten equals, spikes":                   {10, 7, spikes, steady, equal, 0, 0},
		"ten equals, rounded":                  {10, 5, rounded, steady, equal, 0, 0},
		"ten equals, drift":                    {10, 5, normal, steady, equal, 0.3, 0},
		"ten equals, cells missing":            {10, 9, normal, steady, equal, 0.1, 0.1},
		"ten equals, noise of 1 to 10 %":       {10, 5, normal, func(i int) float64 { return 0.01 * float64(i+1) }, equal, 0, 0},
		"ten equals, one ten times noisier":    {10, 5, normal, firstOf(1, 0.3, 0.03), equal, 0, 0},
		"ten equals, half twice as noisy":      {10, 10, normal, everyOf(2, 0.06, 0.03), equal, 0, 0},
		"ten equals, two are means of two":     {10, 5, normal, firstOf(2, 0.03/math.Sqrt2, 0.03), equal, 0, 0},
		"ten equals, long tails and unequal":   {10, 7, longTails, everyOf(3, 0.15, 0.03), equal, 0, 0},
		"three fast, seven slow":               {10, 5, normal, steady, threeFast, 0, 0},
		"three fast, seven slow, long tails":   {10, 7, longTails, steady, threeFast, 0.1, 0},
		"three fast and calm, seven slow":      {10, 5, normal, firstOf(3, 0.01, 0.1), threeFast, 0, 0},
		"three fast, a third five times noisy": {10, 6, normal, everyOf(3, 0.15, 0.03), threeFast, 0, 0},
		"one ten times slower":                 {6, 5, normal, steady, firstOf(1, 2.3, 0), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const studies, rate = 1200, 0.05
			rng := rand.New(rand.NewPCG(7, 11))
			q := NewQuestion(true)
			q.Arrangements = few
			false_ := 0
			for range studies {
				if w.errs(Judge(w.study(rng), q)) {
					false_++
				}
			}
			got := float64(false_) / studies
			t.Logf("%.4f", got)
			if limit := rate + 3*math.Sqrt(rate*(1-rate)/studies); got > limit {
				t.Errorf("a false claim in %.4f of the studies, want at most %.3f (%.4f by chance)", got, rate, limit)
			}
		})
	}
}
