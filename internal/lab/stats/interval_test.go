// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestMedianIntervalLevels(t *testing.T) {
	for _, c := range []struct {
		n         int
		low, high float64 // of 1, 2, ... n
		level     float64
	}{
		{1, 1, 1, 0}, {3, 1, 3, 0.75}, {5, 1, 5, 0.9375}, {6, 1, 6, 0.96875}, {9, 2, 8, 0.9609375}, {20, 6, 15, 0.9586},
	} {
		var s []float64
		for i := c.n; i > 0; i-- {
			s = append(s, float64(i))
		}
		got := MedianInterval(s, 0.95)
		if got.Low != c.low || got.High != c.high || math.Abs(got.Level-c.level) > 1e-4 {
			t.Errorf("%d samples: %+v, want %+v", c.n, got, c)
		}
	}
	if got := RepeatsFor(0.95); got != 6 {
		t.Errorf("95 %% takes %d, want 6", got)
	}
}

// Intervals hold what they are to hold as often as they say, whatever the noise.
func TestIntervalsKeepTheirLevel(t *testing.T) {
	const studies = 4000
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{3, 4, 5, 6, 7, 12, 20} {
		medians, middles, level, pairLevel := 0, 0, 0.0, 0.0
		for range studies {
			skew, d := make([]float64, n), make([]float64, n)
			for i := range n {
				skew[i] = math.Exp(2 * rng.NormFloat64()) // log-normal, of median 1
				d[i] = longTails(rng)
			}
			i := MedianInterval(skew, 0.95)
			if level = i.Level; i.Low <= 1 && 1 <= i.High {
				medians++
			}
			_, j := hodgesLehmann(walsh(d), signedRank(n), n, 0.95)
			if pairLevel = j.Level; j.Low <= 0 && 0 <= j.High {
				middles++
			}
		}
		for _, x := range []struct {
			what  string
			hits  int
			level float64
		}{{"median", medians, level}, {"Hodges-Lehmann", middles, pairLevel}} {
			got := float64(x.hits) / studies
			if chance := 4 * math.Sqrt(x.level*(1-x.level)/studies); math.Abs(got-x.level) > chance {
				t.Errorf("%s of %d: holds in %.4f, says %.4f (%.4f by chance)", x.what, n, got, x.level, chance)
			}
		}
		if (level >= 0.95) != (n >= 6) {
			t.Errorf("%d samples reach %.4f", n, level)
		}
	}
}

// Points of 5 % from published tables of Student's t.
func TestStudentMatchesTables(t *testing.T) {
	for df, want := range map[float64]float64{1: 12.706, 4: 2.776, 10: 2.228, 36: 2.028} {
		got := studentPoint(0.05, df)
		if math.Abs(got-want) > 0.001 || math.Abs(studentTails(got, df)-0.05) > 1e-9 {
			t.Errorf("df %g: %.4f (tails %.6f), want %.3f", df, got, studentTails(got, df), want)
		}
	}
}

func TestTrigammaInverse(t *testing.T) {
	if got, want := trigamma(1), math.Pi*math.Pi/6; math.Abs(got-want) > 1e-7 {
		t.Errorf("trigamma(1) = %.9f, want %.9f", got, want)
	}
	for _, x := range []float64{0.01, 0.3, 1, 2.5, 20, 400} {
		if got := trigammaInverse(trigamma(x)); math.Abs(got-x) > 1e-5*x {
			t.Errorf("%g came back as %g", x, got)
		}
		if got, want := tetragamma(x), (trigamma(x*1.00001)-trigamma(x*0.99999))/(x*0.00002); math.Abs(got-want) > 1e-4*math.Abs(want) {
			t.Errorf("tetragamma(%g) = %g, want %g", x, got, want)
		}
	}
}
