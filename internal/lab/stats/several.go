// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"cmp"
	"slices"
)

// Hochberg says which of several questions may be claimed by their p-values,
// so that any of the claims is false with probability alpha at most: the k-th
// largest p-value, and with it all smaller ones, if it is at most alpha/k
// (Hochberg, Biometrika 75, 1988). It holds for questions that are independent
// or go together. A study that finds the same everywhere loses nothing by the
// number of its questions; one that finds one thing in many has to find it
// surely.
func Hochberg(p []float64, alpha float64) []bool {
	largest := slices.Clone(p)
	slices.SortFunc(largest, func(a, b float64) int { return cmp.Compare(b, a) })
	limit := -1.0
	for i, x := range largest {
		if x <= alpha/float64(i+1) {
			limit = x
			break
		}
	}
	claimed := make([]bool, len(p))
	for i, x := range p {
		claimed[i] = x <= limit
	}
	return claimed
}
