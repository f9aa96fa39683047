// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"slices"
)

// Summary describes the repeats of one cell.
type Summary struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Summarize returns the median and range of samples; N is 0 for none.
func Summarize(samples []float64) Summary {
	if len(samples) == 0 {
		return Summary{}
	}
	s := slices.Sorted(slices.Values(samples))
	n := len(s)
	return Summary{N: n, Median: middle(s), Min: s[0], Max: s[n-1]}
}

// middle is the median of sorted numbers.
func middle(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Present leaves out what is missing (NaN).
func Present(values []float64) []float64 {
	var out []float64
	for _, v := range values {
		if !math.IsNaN(v) {
			out = append(out, v)
		}
	}
	return out
}
