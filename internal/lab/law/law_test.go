// SPDX-License-Identifier: Apache-2.0

package law

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestMeansAreOne(t *testing.T) {
	for _, name := range Names() {
		l, err := Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(1, 2))
		const n = 4_000_000
		sum, squares := 0.0, 0.0
		for range n {
			x := l.Draw(r)
			if x <= 0 {
				t.Fatalf("%s: drew %g", l, x)
			}
			sum += x
			squares += x * x
		}
		mean := sum / n
		// Five standard errors of the sample itself.
		if d := math.Abs(mean - 1); d > 5*math.Sqrt((squares/n-mean*mean)/n)+1e-9 {
			t.Errorf("%s: mean %g", l, mean)
		}
	}
	if _, err := Parse("weibull"); err == nil {
		t.Error("a law called weibull")
	}
}
