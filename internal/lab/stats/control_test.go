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

// Drift is no noise: comparisons within blocks do not suffer from it.
func TestControlTellsNoiseFromDrift(t *testing.T) {
	a, b := pair(40, 0.02, 0.03)
	c := Target{0.05, 5, 100, 0.05}.Check(a, b, 10)
	if math.Abs(c.Noise-0.03) > 0.006 || c.Spread < 0.15 || !c.Reachable {
		t.Errorf("%+v", c)
	}
}

// The blocks foretold are those after which the intervals are narrow.
func TestControlForetellsTheBlocks(t *testing.T) {
	target := Target{0.04, 5, 40, 0.05}
	for _, k := range []int{2, 10} {
		need := target.blocksFor(0.03, k)
		w := world{k, need, normal, same(0.03), same(0), 0, 0}
		rng := rand.New(rand.NewPCG(1, 2))
		mean := 0.0
		for range 50 {
			list := contrasts(logs(w.study(rng)), nil)
			for _, c := range list {
				mean += studentPoint(0.05/float64(len(list)), c.df) * c.standardError() / float64(50*len(list))
			}
		}
		if mean < 0.03 || mean > 0.045 {
			t.Errorf("%d competitors, %d blocks: half width %.3f, want about 0.04", k, need, mean)
		}
	}
}

func TestControlOfANoisyMachine(t *testing.T) {
	target := Target{0.02, 5, 20, 0.05}
	of := func(name string, values ...float64) Series { return Series{Name: name, Values: values} }
	a := of("rr", 1, 1.4, 0.8, 1.2, math.NaN(), 0.9)
	c := target.Check(a, of("rr again", 1.3, 1, 1, 0.8, 1, 1.2), 4)
	if c.Reachable || c.Blocks != 5 || !strings.Contains(c.Reason, "beyond the 20 that there may be") {
		t.Errorf("%+v", c)
	}
	zero := of("rr again", 0, 0, 1, 1, 1, 1, 0) // as tools round
	if c := target.Check(of("rr", 1, 1, 1, 1, 1, 1, 1), zero, 4); c.Needed != 0 || c.Blocks != 4 {
		t.Errorf("%+v", c)
	}
	if d, i := Difference(of("rr", 1, 1, 1), zero, 0.95); math.IsInf(d, 0) || math.IsInf(i.Low, 0) || math.IsNaN(d) {
		t.Errorf("%g, %+v", d, i)
	}
	if c := target.Check(of("rr", 1, 1), a, 4); c.Reachable || c.Needed != 0 || !strings.Contains(c.Reason, "in 2 blocks: 5 are the least") {
		t.Errorf("%+v", c)
	}
	if c := target.Check(of("rr", 3, 3, 3, 3, 3), of("rr again", 3, 3, 3, 3, 3), 4); !c.Reachable || c.Needed != 5 {
		t.Errorf("%+v", c)
	}
}
