// SPDX-License-Identifier: Apache-2.0

package load

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// The table holds exactly the weights, whatever the draws.
func TestChoiceHoldsTheWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := rapid.SliceOfN(rapid.Float64Range(0, 100), 1, 50).Draw(t, "weights")
		w[0]++ // not all 0
		var sum float64
		for _, x := range w {
			sum += x
		}
		c := newChoice(w)
		got := make([]float64, len(w))
		for i, keep := range c.keep {
			got[i] += keep
			got[c.alias[i]] += 1 - keep
		}
		for i := range w {
			if share := got[i] / float64(len(w)); math.Abs(share-w[i]/sum) > 1e-9 {
				t.Fatalf("share of %d is %g, want %g of %v", i, share, w[i]/sum, w)
			}
		}
		if i := c.pick(math.MaxUint64); int(i) >= len(w) {
			t.Fatalf("picked %d of %d", i, len(w))
		}
	})
}

// Draws follow the weights: chi-square with 99 degrees of freedom, 0.01 %.
func TestDrawsFollowZipf(t *testing.T) {
	const n, draws = 100, 200_000
	for _, s := range []float64{0, 0.8, 1, 2} {
		w := zipf(n, s)
		var sum float64
		for _, x := range w {
			sum += x
		}
		for purpose := range uint64(3) {
			c, got := newChoice(w), make([]float64, n)
			for i := range int64(draws) {
				got[c.pick(draw(9, i, purpose))]++
			}
			var chi float64
			for i := range w {
				want := draws * w[i] / sum
				chi += (got[i] - want) * (got[i] - want) / want
			}
			if chi > 160.2 {
				t.Errorf("exponent %g, purpose %d: chi-square %.1f, limit 160.2", s, purpose, chi)
			}
		}
	}
	if a, b := draw(1, 5, forURL), draw(2, 5, forURL); a == b || draw(1, 5, forTarget) == a || draw(1, 6, forURL) == a {
		t.Error("draws do not depend on seed, purpose and number")
	}
}
