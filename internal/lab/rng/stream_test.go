// SPDX-License-Identifier: Apache-2.0

package rng

import (
	"math"
	"testing"
)

// Streams of neighbouring seeds have nothing to do with each other, nor have
// the seeds that follow of them.
func TestStreamsDiffer(t *testing.T) {
	const n = 20000
	for _, c := range []struct{ a, b [2]uint64 }{
		{[2]uint64{1, 1}, [2]uint64{2, 1}}, {[2]uint64{1, 1}, [2]uint64{1, 2}}, {[2]uint64{0, 0}, [2]uint64{0, 1 << 63}},
		{[2]uint64{Seed(1, 1), 1}, [2]uint64{Seed(2, 0), 1}},
	} {
		a, b := Stream(c.a[0], c.a[1]), Stream(c.b[0], c.b[1])
		var product, sum float64
		for range n {
			x, y := a.ExpFloat64()-1, b.ExpFloat64()-1
			product, sum = product+x*y, sum+x
		}
		if r := product / n; math.Abs(r) > 5/math.Sqrt(n) {
			t.Errorf("%v and %v: correlation %.4f", c.a, c.b, r)
		}
		if mean := sum / n; math.Abs(mean) > 5/math.Sqrt(n) {
			t.Errorf("%v: mean %.4f, want 0", c.a, mean)
		}
	}
	if a, b := Stream(7, 1), Stream(7, 1); a.Uint64() != b.Uint64() {
		t.Error("the same seed gives another stream")
	}
}
