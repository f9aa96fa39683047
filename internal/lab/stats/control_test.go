// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// pair is two series of the same: exp of drift and noise.
func pair(blocks int, drift, noise float64) (a, b Series) {
	rng := rand.New(rand.NewPCG(1, 2))
	a.Name, b.Name = "rr", "rr again"
	for i := range blocks {
		a.Values = append(a.Values, math.Exp(drift*float64(i)+noise*rng.NormFloat64()))
		b.Values = append(b.Values, math.Exp(drift*float64(i)+noise*rng.NormFloat64()))
	}
	return a, b
}

// Drift is not noise: comparisons within blocks do not suffer from it.
func TestControlSeparatesNoiseFromDrift(t *testing.T) {
	a, b := pair(40, 0.02, 0.03)
	if c := Check(a, b); math.Abs(c.Noise-0.03) > 0.006 || c.Spread < 0.15 {
		t.Errorf("%+v", c)
	}
}

func TestControlOfFewBlocks(t *testing.T) {
	of := func(name string, values ...float64) Series { return Series{Name: name, Values: values} }
	a := of("rr", 1, 1.4, 0.8, 1.2, math.NaN(), 0.9)
	if c := Check(a, of("rr again", 1.3, 1, 1, 0.8, 1, 1.2)); c.Blocks != 5 || c.Noise < 0.1 {
		t.Errorf("%+v", c)
	}
	zero := of("rr again", 0, 0, 1, 1, 1, 1, 0) // as tools round
	if c := Check(of("rr", 1, 1, 1, 1, 1, 1, 1), zero); c.Noise != 0 || c.Blocks != 4 || !strings.Contains(c.Reason, "in 4 blocks, at least 5 are needed") {
		t.Errorf("%+v", c)
	}
	if d, i := Difference(of("rr", 1, 1, 1), zero, 0.95); math.IsInf(d, 0) || math.IsInf(i.Low, 0) || math.IsNaN(d) {
		t.Errorf("%g, %+v", d, i)
	}
}
