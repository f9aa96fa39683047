// SPDX-License-Identifier: Apache-2.0

package load

import (
	"math"
	"strings"
	"testing"
	"time"
)

// starts are a plan's counted arrivals, in seconds from the window's begin.
func starts(p Plan) (list []float64) {
	p = p.withDefaults()
	d := newDeal(p, 0)
	for _, more := d.peek(0); more; _, more = d.peek(0) {
		if a, _ := d.take(); a.counted {
			list = append(list, float64(a.at-int64(p.Warmup))/1e9)
		}
	}
	return list
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
	for _, arrivals := range []Arrivals{Constant, Poisson} {
		for _, p := range []Plan{
			{Rate: 1000, Shape: Shape{RampTo: 5000}, Duration: 10 * time.Second},
			{Rate: 1000, Shape: Shape{RampTo: 5000}, Connections: 30000, Warmup: 3 * time.Second},
			{Rate: 5000, Shape: Shape{RampTo: 1}, Duration: 10 * time.Second, Warmup: time.Second},
		} {
			p.Arrivals = arrivals
			list := starts(p)
			for s := range 10 {
				a, slope := p.Rate, (p.Shape.RampTo-p.Rate)/10
				want := a + slope*(float64(s)+0.5) // the rate in the second's middle
				tolerance := 1.5
				if arrivals == Poisson {
					tolerance = 4 * math.Sqrt(want)
				}
				if n := between(list, float64(s), float64(s+1)); math.Abs(n-want) > tolerance {
					t.Errorf("%s, %g: %g arrivals in second %d, want %g", Pattern(arrivals, p.Shape), p.Rate, n, s, want)
				}
			}
		}
	}
}

func TestOnOff(t *testing.T) {
	for _, arrivals := range []Arrivals{Constant, Poisson} {
		p := Plan{Rate: 1000, Arrivals: arrivals, Duration: 10 * time.Second,
			Shape: Shape{On: 200 * time.Millisecond, Off: 300 * time.Millisecond}}
		list := starts(p)
		for period := range 20 {
			from := float64(period) * 0.5
			// A tick of rounding lies between the periods.
			if n := between(list, from+0.2+1e-6, from+0.5-1e-6); n != 0 {
				t.Errorf("%v: %g arrivals while off", arrivals, n)
			}
			tolerance := 1.0
			if arrivals == Poisson {
				tolerance = 4.5 * math.Sqrt(500)
			}
			if n := between(list, from-1e-6, from+0.2+1e-6); math.Abs(n-500) > tolerance {
				t.Errorf("%v: %g arrivals in an On, want 500: the rate is the mean", arrivals, n)
			}
		}
		halves := between(list, 1, 1.1) / between(list, 1, 1.2)
		if math.Abs(halves-0.5) > 0.1 {
			t.Errorf("%v: %.2f of an On's arrivals in its first half", arrivals, halves)
		}
	}
}

func TestBatches(t *testing.T) {
	for _, arrivals := range []Arrivals{Constant, Poisson} {
		list := starts(Plan{Rate: 10000, Arrivals: arrivals, Seed: 1, Connections: 100_000, Shape: Shape{Batch: 10}})
		var epochs []float64
		for i, at := range list {
			if i%10 == 0 {
				epochs = append(epochs, at)
			} else if at != list[i-1] {
				t.Fatalf("%v: arrival %d is not at its batch's instant", arrivals, i)
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
		if arrivals == Poisson {
			want, tolerance = 1, 4*math.Sqrt(8/n)
		}
		if math.Abs(mean-1) > 4*math.Sqrt(want/n)+1e-6 || math.Abs(variance-want) > tolerance {
			t.Errorf("%v: gaps of batches have mean %.4f and variance %.4f, want 1 and %g", arrivals, mean, variance, want)
		}
	}
}

// The planned end is where constant arrivals end.
func TestNominalEnd(t *testing.T) {
	for _, s := range []Shape{{}, {RampTo: 3000}, {RampTo: 10}, {On: 70 * time.Millisecond, Off: 30 * time.Millisecond}, {Batch: 7}} {
		for _, warmup := range []time.Duration{0, 777 * time.Millisecond} {
			p := Plan{Rate: 1000, Shape: s, Connections: 2500, Warmup: warmup}.withDefaults()
			d := newDeal(p, 0)
			for _, more := d.peek(0); more; _, more = d.peek(0) {
				d.take()
			}
			end, known := d.end()
			if got := nominalEnd(p); !known || math.Abs(float64(got-end)) > 40e6 {
				t.Errorf("%+v, warm-up %s: planned end %d, real %d", s, warmup, got, end)
			}
		}
	}
}

func TestPatterns(t *testing.T) {
	for _, text := range []string{
		"constant", "poisson", "poisson batch=10", "constant on=200ms off=1.5s", "poisson to=2000", "poisson batch=3 to=0.5",
	} {
		a, s, err := ParsePattern(text)
		if err != nil || Pattern(a, s) != text {
			t.Errorf("%q is parsed as %v %+v, written %q, %v", text, a, s, Pattern(a, s), err)
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
	} {
		if _, _, err := ParsePattern(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}
