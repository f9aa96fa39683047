// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
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

// popularity draws from a number of things of which the k-th is drawn in
// proportion to k^-exponent (Zipf); by Walker's aliases, in constant time.
type popularity struct {
	share []float64
	alias []int32
	r     *rand.Rand
}

func newPopularity(n int, exponent float64, r *rand.Rand) *popularity {
	p := &popularity{share: make([]float64, n), alias: make([]int32, n), r: r}
	total := 0.0
	for i := range p.share {
		p.share[i] = math.Pow(float64(i+1), -exponent)
		total += p.share[i]
	}
	var small, large []int32
	for i := range p.share {
		p.share[i] *= float64(n) / total
		p.alias[i] = int32(i)
		if p.share[i] < 1 {
			small = append(small, int32(i))
		} else {
			large = append(large, int32(i))
		}
	}
	for len(small) > 0 && len(large) > 0 {
		s, l := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		p.alias[s] = l
		p.share[l] -= 1 - p.share[s]
		if p.share[l] < 1 {
			large = large[:len(large)-1]
			small = append(small, l)
		}
	}
	for _, rest := range append(small, large...) { // 1, but for rounding
		p.share[rest] = 1
	}
	return p
}

// draw is the index of one of them, 0 the most popular.
func (p *popularity) draw() int {
	x := p.r.Float64() * float64(len(p.share))
	i := int(x)
	if x-float64(i) < p.share[i] {
		return i
	}
	return int(p.alias[i])
}
