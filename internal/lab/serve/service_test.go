// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"math"
	"testing"
	"time"

	"imbang/internal/lab/distribution"
)

// A path names the distribution of its service time; the mean stays.
func TestServiceByPath(t *testing.T) {
	const mean = 10 * time.Millisecond
	s := NewStation(Capacity{Distribution: distribution.Constant, Service: mean, Concurrency: 1, Speed: 1, Seed: 3}).(*station)
	for path, variation := range map[string]float64{
		"/": 0, "/service/constant": 0, "/service/none": 0, "/service/exponential/a": 1, "/service/lognormal": math.Sqrt(math.Exp(2.25) - 1),
	} {
		const n = 200_000
		sum, squares := 0.0, 0.0
		for range n {
			x := s.work(path).Seconds() / mean.Seconds()
			sum, squares = sum+x, squares+x*x
		}
		average := sum / n
		if deviation := math.Sqrt(squares/n - average*average); math.Abs(average-1) > 0.05 || math.Abs(deviation-variation) > 0.2*variation+1e-6 {
			t.Errorf("%s: mean %.3f, deviation %.3f of the stated mean; want 1 and %.3f", path, average, deviation, variation)
		}
	}
}
