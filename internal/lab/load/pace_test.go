// SPDX-License-Identifier: Apache-2.0

package load

import (
	"math"
	"sort"
	"testing"
	"time"

	"pgregory.net/rapid"
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
		s := newSchedule(Plan{Rate: tc.rate})
		for i, want := range tc.want {
			if got, _ := s.next(); got.at != want {
				t.Errorf("rate %g: arrival %d at %d, want %d", tc.rate, i, got.at, want)
			}
		}
	}
	s := newSchedule(Plan{Rate: 14000})
	var a arrival
	for range 14000*600 + 1 {
		a, _ = s.next()
	}
	if a.at != int64(10*time.Minute) {
		t.Errorf("arrival ten minutes in at %d, want %d", a.at, 10*time.Minute)
	}
}

// gaps are n Poisson gaps as multiples of the mean one.
func gaps(seed uint64, n int) []float64 {
	const rate = 8000
	s := newSchedule(Plan{Rate: rate, Arrivals: Poisson, Seed: seed})
	out, last := make([]float64, n), int64(0)
	for i := range out {
		a, _ := s.next()
		out[i] = float64(a.at-last) * rate / 1e9
		last = a.at
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

// However many clients share a schedule, together they send exactly what one
// would, and as many counted arrivals as asked.
func TestDealIsAPartition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Plan{
			Rate:     rapid.Float64Range(1, 20000).Draw(t, "rate"),
			Arrivals: rapid.SampledFrom([]Arrivals{Constant, Poisson}).Draw(t, "arrivals"),
			Seed:     rapid.Uint64().Draw(t, "seed"),
			Clients:  make([]Client, rapid.IntRange(1, 5).Draw(t, "clients")),
			Shape:    Shape{Batch: rapid.IntRange(0, 5).Draw(t, "batch")},
		}
		switch rapid.IntRange(0, 2).Draw(t, "shape") {
		case 1:
			p.Shape.On, p.Shape.Off = 7*time.Millisecond, 13*time.Millisecond
		case 2:
			p.Shape.RampTo = rapid.Float64Range(1, 20000).Draw(t, "ramp")
		}
		p.Warmup = time.Duration(rapid.Float64Range(0, 50).Draw(t, "warm-up gaps") * 1e9 / p.Rate)
		if rapid.Bool().Draw(t, "by number") {
			p.Connections = rapid.IntRange(1, 200).Draw(t, "connections")
		} else {
			p.Duration = 1 + time.Duration(rapid.Float64Range(0, 200).Draw(t, "gaps")*1e9/p.Rate)
		}
		walk := func(d *deal) (out []arrival) {
			for at, more := d.peek(0); more; at, more = d.peek(0) {
				a, _ := d.take()
				if a.at != at {
					t.Fatalf("took an arrival at %d, peeked %d", a.at, at)
				}
				out = append(out, a)
			}
			return out
		}
		alone := p
		alone.Clients = p.Clients[:1]
		one := newDeal(alone, 0)
		want := walk(one)
		got, ends := make([]arrival, len(want)), map[int64]bool{}
		total := 0
		for me := range p.Clients {
			d := newDeal(p, me)
			for i, a := range walk(d) {
				got[i*len(p.Clients)+me] = a
				total++
			}
			ends[d.close] = true
		}
		counted := 0
		for i, a := range want {
			if got[i] != a {
				t.Fatalf("arrival %d: %v, alone %v", i, got[i], a)
			}
			if a.counted != (a.at >= int64(p.Warmup)) {
				t.Fatalf("arrival at %d counted %v with warm-up %d", a.at, a.counted, p.Warmup)
			}
			if a.counted {
				counted++
			}
		}
		if total != len(want) || !ends[one.close] || len(ends) != 1 {
			t.Fatalf("%d arrivals ending at %v, alone %d ending at %d", total, ends, len(want), one.close)
		}
		if p.Connections > 0 && counted != p.Connections {
			t.Fatalf("%d counted, want %d", counted, p.Connections)
		}
		if len(want) > 0 && one.close < want[len(want)-1].at {
			t.Fatalf("window ends at %d, before the last arrival at %d", one.close, want[len(want)-1].at)
		}
	})
}
