// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// Drift is no noise: comparisons within blocks do not suffer from it.
func TestControlTellsNoiseFromDrift(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var x []float64
	for b := range 40 {
		x = append(x, math.Exp(0.02*float64(b)+0.03*rng.NormFloat64()))
	}
	c := Target{0.05, 5, 100, 0.05}.Check(x, 10)
	if math.Abs(c.Noise-0.035) > 0.01 || c.Spread < 0.15 || !c.Reachable {
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
	c := target.Check([]float64{1, 1.4, 0.8, 1.2, math.NaN(), 0.9}, 4)
	if c.Reachable || c.Blocks != 5 || !strings.Contains(c.Reason, "beyond the budget of 20") {
		t.Errorf("%+v", c)
	}
	if c := target.Check([]float64{1, 1}, 4); c.Reachable || !strings.Contains(c.Reason, "measured 2 times") {
		t.Errorf("%+v", c)
	}
	if c := target.Check([]float64{3, 3, 3, 3, 3}, 4); !c.Reachable || c.Needed != 5 {
		t.Errorf("%+v", c)
	}
}
