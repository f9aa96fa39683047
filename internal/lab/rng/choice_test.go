// SPDX-License-Identifier: Apache-2.0

package rng

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
		c := NewChoice(w)
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
		if i := c.Pick(math.MaxUint64); int(i) >= len(w) {
			t.Fatalf("picked %d of %d", i, len(w))
		}
	})
}
