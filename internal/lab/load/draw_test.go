// SPDX-License-Identifier: Apache-2.0

package load

import (
	"testing"

	"imbang/internal/lab/rng"
)

// Draws follow the weights: chi-square with 99 degrees of freedom, 0.01 %.
func TestDrawsFollowZipf(t *testing.T) {
	const n, draws = 100, 200_000
	for _, s := range []float64{0, 0.8, 1, 2} {
		w := rng.Zipf(n, s)
		var sum float64
		for _, x := range w {
			sum += x
		}
		for purpose := range uint64(3) {
			c, got := rng.NewChoice(w), make([]float64, n)
			for i := range int64(draws) {
				got[c.Pick(draw(9, i, purpose))]++
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
