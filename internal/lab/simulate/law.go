// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// Law is how the work that connections bring is distributed, with a mean of 1.
type Law string

// The laws. Web servers' are heavy-tailed: most requests are short, and a few
// make up much of the work.
const (
	Constant    Law = "constant"
	Exponential Law = "exponential"
	Pareto      Law = "pareto"    // bounded
	LogNormal   Law = "lognormal" // of sigma 1.5
)

// Laws are all of them.
func Laws() []string {
	return []string{string(Constant), string(Exponential), string(Pareto), string(LogNormal)}
}

// ParseLaw knows a law by its name.
func ParseLaw(name string) (Law, error) {
	if !slices.Contains(Laws(), name) {
		return "", fmt.Errorf("%q is no law of service times: want one of %s", name, strings.Join(Laws(), ", "))
	}
	return Law(name), nil
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

// draw is the work of one connection.
func (l Law) draw(r *rand.Rand) float64 {
	switch l {
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
