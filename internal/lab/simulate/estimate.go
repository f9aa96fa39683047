// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math"

	"imbang/internal/lab/stats"
)

// Estimate is what repeats say of a figure: their mean, and how far the true
// one may lie from it with a probability of 95 %.
type Estimate struct {
	Mean      float64       `json:"mean"`
	HalfWidth float64       `json:"half_width"` // 0 of a single repeat: nothing is known
	Spread    stats.Summary `json:"spread"`
}

// estimate uses Student's distribution: repeats have seeds of their own, so
// they are independent.
func estimate(samples []float64) Estimate {
	n := float64(len(samples))
	e := Estimate{Spread: stats.Summarize(samples)}
	if n == 0 {
		return e
	}
	e.Mean = sum(samples) / n
	if n == 1 {
		return e
	}
	squares := 0.0
	for _, x := range samples {
		squares += (x - e.Mean) * (x - e.Mean)
	}
	e.HalfWidth = student(len(samples)-1) * math.Sqrt(squares/(n-1)/n)
	return e
}

// student95 are the 97.5 % quantiles of Student's distribution, by degrees of
// freedom from 1.
var student95 = []float64{
	12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
	2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
	2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
}

func student(freedom int) float64 {
	if freedom <= len(student95) {
		return student95[freedom-1]
	}
	// Cornish and Fisher's expansion; right to a thousandth here.
	const z = 1.959964
	return z + (z*z*z+z)/(4*float64(freedom))
}
