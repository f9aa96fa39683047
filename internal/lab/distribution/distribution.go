// SPDX-License-Identifier: Apache-2.0

// Package distribution holds the distributions of service times that built-in and
// simulated servers share. It is pure.
package distribution

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// Distribution is how the work that connections bring is distributed, with a mean of 1.
type Distribution string

// The distributions. Web servers' are heavy-tailed: most requests are short, and a few
// make up much of the work.
const (
	Constant    Distribution = "constant"
	Exponential Distribution = "exponential"
	Pareto      Distribution = "pareto"    // bounded
	LogNormal   Distribution = "lognormal" // of sigma 1.5
)

// Names are all of them.
func Names() []string {
	return []string{string(Constant), string(Exponential), string(Pareto), string(LogNormal)}
}

// Parse is the inverse of a name.
func Parse(name string) (Distribution, error) {
	if !slices.Contains(Names(), name) {
		return "", fmt.Errorf("%q is no distribution of service times: want one of %s", name, strings.Join(Names(), ", "))
	}
	return Distribution(name), nil
}

const (
	// paretoShape is about what files on the web have; the longest work is
	// paretoRange times the shortest.
	paretoShape = 1.3
	paretoRange = 10000.0
	sigma       = 1.5
)

// paretoLeast makes the mean 1.
var paretoLeast = func() float64 {
	a := paretoShape
	return 1 / (a / (a - 1) * (1 - math.Pow(paretoRange, 1-a)) / (1 - math.Pow(paretoRange, -a)))
}()

// Draw is the work of one connection.
func (d Distribution) Draw(r *rand.Rand) float64 {
	switch d {
	case Exponential:
		return r.ExpFloat64()
	case Pareto: // by the inverse of its distribution
		rest := 1 - r.Float64()*(1-math.Pow(paretoRange, -paretoShape))
		return paretoLeast * math.Pow(rest, -1/paretoShape)
	case LogNormal:
		return math.Exp(sigma*r.NormFloat64() - sigma*sigma/2)
	}
	return 1
}
