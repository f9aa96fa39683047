// SPDX-License-Identifier: Apache-2.0

package arrivals

import (
	"math"
	"strings"
	"testing"
	"time"
)

// starts are a schedule's arrivals after its warm-up, in seconds from there.
func starts(s Spec) (list []float64) {
	from := int64(s.Warmup)
	for sched := NewSchedule(s); ; {
		at := sched.Next()
		switch {
		case at < from:
			continue
		case s.Connections > 0 && len(list) == s.Connections, s.Connections == 0 && at >= from+int64(s.Duration):
			return list
		}
		list = append(list, float64(at-from)/1e9)
	}
}

// between counts the starts in [from, to).
func between(list []float64, from, to float64) (n float64) {
	for _, at := range list {
		if at >= from && at < to {
			n++
		}
	}
	return n
}

func TestRamp(t *testing.T) {
	for _, distribution := range []Distribution{Constant, Poisson} {
		for _, p := range []Spec{
			{Rate: 1000, Pattern: Pattern{Shape: Shape{RampTo: 5000}}, Duration: 10 * time.Second},
			{Rate: 1000, Pattern: Pattern{Shape: Shape{RampTo: 5000}}, Connections: 30000, Warmup: 3 * time.Second},
			{Rate: 5000, Pattern: Pattern{Shape: Shape{RampTo: 1}}, Duration: 10 * time.Second, Warmup: time.Second},
		} {
			p.Distribution = distribution
			list := starts(p)
			for s := range 10 {
				a, slope := p.Rate, (p.Shape.RampTo-p.Rate)/10
				want := a + slope*(float64(s)+0.5) // the rate in the second's middle
				tolerance := 1.5
				if distribution == Poisson {
					tolerance = 4 * math.Sqrt(want)
				}
				if n := between(list, float64(s), float64(s+1)); math.Abs(n-want) > tolerance {
					t.Errorf("%s, %g: %g arrivals in second %d, want %g", p.Pattern, p.Rate, n, s, want)
				}
			}
		}
	}
}

func TestOnOff(t *testing.T) {
	for _, distribution := range []Distribution{Constant, Poisson} {
		p := Spec{Rate: 1000, Duration: 10 * time.Second,
			Pattern: Pattern{distribution, Shape{On: 200 * time.Millisecond, Off: 300 * time.Millisecond}}}
		list := starts(p)
		for period := range 20 {
			from := float64(period) * 0.5
			// A tick of rounding lies between the periods.
			if n := between(list, from+0.2+1e-6, from+0.5-1e-6); n != 0 {
				t.Errorf("%v: %g arrivals while off", distribution, n)
			}
			tolerance := 1.0
			if distribution == Poisson {
				tolerance = 4.5 * math.Sqrt(500)
			}
			if n := between(list, from-1e-6, from+0.2+1e-6); math.Abs(n-500) > tolerance {
				t.Errorf("%v: %g arrivals in an On, want 500: the rate is the mean", distribution, n)
			}
		}
		halves := between(list, 1, 1.1) / between(list, 1, 1.2)
		if math.Abs(halves-0.5) > 0.1 {
			t.Errorf("%v: %.2f of an On's arrivals in its first half", distribution, halves)
		}
	}
}

func TestBatches(t *testing.T) {
	for _, distribution := range []Distribution{Constant, Poisson} {
		list := starts(Spec{Pattern: Pattern{distribution, Shape{Batch: 10}}, Rate: 10000, Seed: 1, Connections: 100_000})
		var epochs []float64
		for i, at := range list {
			if i%10 == 0 {
				epochs = append(epochs, at)
			} else if at != list[i-1] {
				t.Fatalf("%v: arrival %d is not at its batch's instant", distribution, i)
			}
		}
		var sum, square float64
		for i := 1; i < len(epochs); i++ {
			gap := (epochs[i] - epochs[i-1]) * 1000 // mean 1
			sum += gap
			square += gap * gap
		}
		n := float64(len(epochs) - 1)
		mean, variance := sum/n, square/n-sum/n*sum/n
		want, tolerance := 0.0, 1e-6
		if distribution == Poisson {
			want, tolerance = 1, 4*math.Sqrt(8/n)
		}
		if math.Abs(mean-1) > 4*math.Sqrt(want/n)+1e-6 || math.Abs(variance-want) > tolerance {
			t.Errorf("%v: gaps of batches have mean %.4f and variance %.4f, want 1 and %g", distribution, mean, variance, want)
		}
	}
}

// The end that is expected is where constant arrivals end.
func TestEnd(t *testing.T) {
	for _, shape := range []Shape{{}, {RampTo: 3000}, {RampTo: 10}, {On: 70 * time.Millisecond, Off: 30 * time.Millisecond}, {Batch: 7}} {
		for _, warmup := range []time.Duration{0, 777 * time.Millisecond} {
			s := Spec{Pattern: Pattern{Shape: shape}, Rate: 1000, Connections: 2500, Warmup: warmup}
			sched, at := NewSchedule(s), int64(0)
			for counted := 0; counted <= s.Connections; { // what comes next is the end
				if at = sched.Next(); at >= int64(warmup) {
					counted++
				}
			}
			if off := s.End() - at; max(off, -off) > 40e6 {
				t.Errorf("%+v, warm-up %s: expected end %d, real %d", shape, warmup, s.End(), at)
			}
		}
	}
}

func TestPatterns(t *testing.T) {
	for _, text := range []string{
		"constant", "poisson", "poisson batch=10", "constant on=200ms off=1.5s", "poisson to=2000", "poisson batch=3 to=0.5", "constant burst=2.5",
	} {
		p, err := Parse(text)
		if err != nil || p.String() != text {
			t.Errorf("%q is parsed as %+v, written %q, %v", text, p, p, err)
		}
	}
	for text, want := range map[string]string{
		"":                           "want constant or poisson",
		"uniform":                    "want constant or poisson",
		"poisson batch=x":            "batch=x: ",
		"poisson on=1s":              "want both above 0",
		"poisson fast":               "fast: want batch=",
		"poisson to=NaN":             "ramp to NaN",
		"poisson on=1s off=1s to=10": "cannot be had together",
		"constant batch=-1":          "batch -1",
		"poisson burst=0.5":          "burst 0.5: want a mean size",
		"poisson burst=NaN":          "burst NaN: want a mean size",
		"poisson burst=2 batch=2":    "give one",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}
