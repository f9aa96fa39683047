// SPDX-License-Identifier: Apache-2.0

package arrivals

import (
	"math"
	"sort"
	"testing"
	"time"

	"imbang/internal/testenv"
)

func TestConstantSpacing(t *testing.T) {
	for _, tc := range []struct {
		rate float64
		want []int64
	}{
		{1000, []int64{0, 1e6, 2e6, 3e6}},
		{0.5, []int64{0, 2e9, 4e9}},
		{3, []int64{0, 333333333, 666666666, 1000000000}}, // rounding does not add up
	} {
		s := NewSchedule(Spec{Rate: tc.rate})
		for i, want := range tc.want {
			if got := s.Next(); got != want {
				t.Errorf("rate %g: arrival %d at %d, want %d", tc.rate, i, got, want)
			}
		}
	}
	s := NewSchedule(Spec{Rate: 14000})
	var at int64
	for range 14000*600 + 1 {
		at = s.Next()
	}
	if at != int64(10*time.Minute) {
		t.Errorf("arrival ten minutes in at %d, want %d", at, 10*time.Minute)
	}
}

// gaps are n Poisson gaps as multiples of the mean one.
func gaps(seed uint64, n int) []float64 {
	const rate = 8000
	s := NewSchedule(Spec{Pattern: Pattern{Distribution: Poisson}, Rate: rate, Seed: seed})
	out, last := make([]float64, n), int64(0)
	for i := range out {
		at := s.Next()
		out[i] = float64(at-last) * rate / 1e9
		last = at
	}
	return out
}

func TestPoissonGaps(t *testing.T) {
	const n = 200_000
	for seed := range uint64(4) {
		g := gaps(seed, n)
		var sum, square, lagged float64
		for i, x := range g {
			sum += x
			square += x * x
			if i > 0 {
				lagged += (x - 1) * (g[i-1] - 1)
			}
		}
		mean := sum / n
		variance := square/n - mean*mean
		// Standard errors: mean 1/sqrt(n), variance sqrt(8/n), lag 1/sqrt(n).
		for _, c := range []struct {
			name            string
			got, want, sigs float64
		}{
			{"mean", mean, 1, math.Sqrt(1.0 / n)},
			{"variance", variance, 1, math.Sqrt(8.0 / n)},
			{"correlation of neighbours", lagged / n, 0, math.Sqrt(1.0 / n)},
		} {
			if math.Abs(c.got-c.want) > 4*c.sigs {
				t.Errorf("seed %d: %s of the gaps %.5f, want %g within %.5f", seed, c.name, c.got, c.want, 4*c.sigs)
			}
		}
		// Kolmogorov-Smirnov against 1-exp(-x), 0.1 % critical value.
		sort.Float64s(g)
		var d float64
		for i, x := range g {
			f := 1 - math.Exp(-x)
			d = max(d, math.Abs(f-float64(i)/n), math.Abs(f-float64(i+1)/n))
		}
		if limit := 1.95 / math.Sqrt(n); d > limit {
			t.Errorf("seed %d: gaps are not exponential: KS distance %.5f, limit %.5f", seed, d, limit)
		}
	}
}

func TestPoissonSeeds(t *testing.T) {
	a, b, c := gaps(7, 100), gaps(7, 100), gaps(8, 100)
	same := 0
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("gap %d differs with equal seeds", i)
		}
		if a[i] == c[i] {
			same++
		}
	}
	if same > 2 {
		t.Errorf("%d of 100 gaps equal with different seeds", same)
	}
}

// Whatever the pattern, the rate stated is the mean one.
func TestPatternsKeepTheRate(t *testing.T) {
	for _, text := range []string{
		"constant", "poisson", "poisson batch=7", "constant burst=20", "poisson burst=20", "poisson burst=1", "poisson burst=5 on=20ms off=30ms",
	} {
		p, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		s := NewSchedule(Spec{Pattern: p, Rate: 1000, Seed: 3})
		const n = 400_000
		var last int64
		for range n {
			at := s.Next()
			if at < last {
				t.Fatalf("%s: an arrival at %d comes after one at %d", text, at, last)
			}
			last = at
		}
		testenv.Near(t, text+"'s gap", float64(last)/n, 1e6, 0.03)
	}
}

// Bursts have a geometric size of the mean asked for.
func TestBursts(t *testing.T) {
	s := NewSchedule(Spec{Pattern: Pattern{Distribution: Constant, Shape: Shape{Burst: 4}}, Rate: 1000, Seed: 1})
	sizes, last := map[int64]int{}, int64(0)
	for range 400_000 {
		last = s.Next()
		sizes[last]++
	}
	count := map[int]float64{}
	for at, n := range sizes {
		if at%4e6 != 0 {
			t.Fatalf("a burst at %d ns, want a multiple of four gaps", at)
		}
		count[n]++
	}
	total := float64(len(sizes))
	testenv.Near(t, "the mean size", 400_000/total, 4, 0.02)
	for n, share := range map[int]float64{1: 1. / 4, 2: 3. / 16, 5: 81. / 1024} {
		testenv.Near(t, "the share of one size", count[n]/total, share, 0.05)
	}
}
