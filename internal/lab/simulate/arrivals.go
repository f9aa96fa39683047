// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"imbang/internal/lab/chance"
)

// Arrivals is how connections are spaced.
type Arrivals string

// The ways of arriving. Bursts come at random, each of a geometric number of
// connections at once.
const (
	Even    Arrivals = "constant"
	Poisson Arrivals = "poisson"
	Bursts  Arrivals = "bursts"
)

// ArrivalNames are all of them.
func ArrivalNames() []string { return []string{string(Even), string(Poisson), string(Bursts)} }

// ParseArrivals knows them by their names.
func ParseArrivals(name string) (Arrivals, error) {
	if !slices.Contains(ArrivalNames(), name) {
		return "", fmt.Errorf("%q is no way of arriving: want one of %s", name, strings.Join(ArrivalNames(), ", "))
	}
	return Arrivals(name), nil
}

// source is a stream of arrivals.
type source struct {
	how   Arrivals
	gap   float64 // mean [ns] between connections
	burst float64 // mean size
	r     *rand.Rand
}

// next is how long it is to the next arrival, and of how many connections.
func (s *source) next() (wait int64, connections int) {
	switch s.how {
	case Poisson:
		return int64(s.gap * s.r.ExpFloat64()), 1
	case Bursts:
		n := 1
		if s.burst > 1 {
			n += int(math.Log(1-s.r.Float64()) / math.Log(1-1/s.burst))
		}
		return int64(s.gap * s.burst * s.r.ExpFloat64()), n
	}
	return int64(s.gap), 1
}

// popularity draws from a number of things by Zipf's law.
type popularity struct {
	*chance.Choice
	r *rand.Rand
}

func newPopularity(n int, exponent float64, r *rand.Rand) *popularity {
	return &popularity{chance.NewChoice(chance.Zipf(n, exponent)), r}
}

// draw is the index of one of them, 0 the most popular.
func (p *popularity) draw() int { return int(p.At(p.r.Float64())) }
