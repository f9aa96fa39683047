// SPDX-License-Identifier: Apache-2.0

package run

import (
	"math"
	"math/rand/v2"
	"testing"
)

// seek runs a search against a probe and returns its result and the rates.
func seek(first float64, probes int, passes func(rate float64) bool) (rate float64, found bool, made []float64) {
	s := newSearch(first, probes)
	for {
		r, more := s.next()
		if !more {
			break
		}
		made = append(made, r)
		s.tell(passes(r))
	}
	rate, found = s.result()
	return rate, found, made
}

// Whatever the first estimate, the search comes close to the capacity from
// below.
func TestSearchFindsTheCapacity(t *testing.T) {
	for _, first := range []float64{300, 900, 1000, 1100, 3000} {
		rate, found, made := seek(first, 40, func(r float64) bool { return r <= 1000 })
		if !found || rate > 1000 || rate < 1000/closeEnough {
			t.Errorf("from %g: %g, %v; want %g to 1000", first, rate, found, 1000/closeEnough)
		}
		if len(made) > 30 {
			t.Errorf("from %g: %d probes", first, len(made))
		}
	}
}

// A probe passes with a probability that falls from 1 to 0 over a tenth of the
// capacity: most searches end near the middle, none far off.
func TestSearchWithNoise(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const runs = 2000
	near := 0
	for range runs {
		rate, found, made := seek(900, 16, func(r float64) bool {
			return rng.Float64() < 1/(1+math.Exp((r-1000)/20))
		})
		if len(made) > 16 {
			t.Fatalf("%d probes, want at most 16", len(made))
		}
		if !found || rate < 600 || rate > 1250 {
			t.Errorf("%g, %v", rate, found)
		}
		if math.Abs(rate-1000) <= 80 {
			near++
		}
	}
	if near < runs*9/10 {
		t.Errorf("%d of %d searches end within 8 %% of the capacity", near, runs)
	}
}

// One late stall does not fail a rate, and the number of probes is kept
// whatever they say.
func TestSearchEnds(t *testing.T) {
	n := 0
	rate, found, made := seek(1000, 40, func(r float64) bool { n++; return n != 2 && r <= 1100 })
	if !found || rate < 1100/closeEnough || rate > 1100 {
		t.Errorf("with one stall: %g, %v after %v", rate, found, made)
	}
	if rate, found, made = seek(1000, 7, func(float64) bool { return true }); !found || len(made) != 7 || rate < 1000 {
		t.Errorf("all pass: %g, %v after %v", rate, found, made)
	}
	rate, found, made = seek(1000, 7, func(float64) bool { return false })
	if found || len(made) != 7 || rate != made[len(made)-1] {
		t.Errorf("none passes: %g, %v after %v; want the lowest probed", rate, found, made)
	}
}
