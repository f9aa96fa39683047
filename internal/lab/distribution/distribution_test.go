// SPDX-License-Identifier: Apache-2.0

package distribution

import (
	"math"
	"math/rand/v2"
	"testing"

	"imbang/internal/testenv"
)

// Every distribution has the mean 1, and the squared variation that it says.
func TestLaws(t *testing.T) {
	// Of the bounded Pareto distribution by its second moment.
	a, r := paretoShape, paretoRange
	pareto := math.Pow(paretoLeast, 2)*a/(2-a)*(math.Pow(r, 2-a)-1)/(1-math.Pow(r, -a)) - 1
	for l, variation := range map[Distribution]float64{Constant: 0, Exponential: 1, Pareto: pareto, LogNormal: math.Exp(sigma*sigma) - 1} {
		rng := rand.New(rand.NewPCG(1, 2))
		const n = 4_000_000
		total, squares := 0.0, 0.0
		for range n {
			x := l.Draw(rng)
			total += x
			squares += x * x
		}
		mean := total / n
		testenv.Near(t, string(l)+"'s mean", mean, 1, 0.03)
		if variation > 0 {
			testenv.Near(t, string(l)+"'s variation", squares/n/(mean*mean)-1, variation, 0.25)
		}
	}
	if _, err := Parse("weibull"); err == nil {
		t.Error("weibull is taken for a distribution")
	}
}
