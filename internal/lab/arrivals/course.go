// SPDX-License-Identifier: Apache-2.0

package arrivals

import "math"

// course is the expected number of arrivals as a function of time, inverted.
// A distribution of arrivals draws them at unit rate; putting each where the course
// reaches its number gives the same distribution at a rate that varies (for Poisson
// arrivals, the inhomogeneous process).
type course struct {
	gap float64 // of the rate, ns

	// A ramp begins at from, lasts length and ends at gapTo.
	gapTo, from, length float64
	// Cycles of on and off.
	on, off float64
}

func newCourse(s Spec) course {
	c := course{gap: 1e9 / s.Rate, on: float64(s.Shape.On), off: float64(s.Shape.Off)}
	if to := s.Shape.RampTo; to > 0 && to != s.Rate {
		c.gapTo, c.from, c.length = 1e9/to, float64(s.Warmup), float64(s.Duration)
		if s.Connections > 0 {
			c.length = float64(s.Connections) * 1e9 / ((s.Rate + to) / 2)
		}
	}
	return c
}

// at is when the course reaches a number of arrivals, in ns. The steady one
// multiplies rather than adds, so that rounding never accumulates.
func (c *course) at(number float64) float64 {
	switch {
	case c.on > 0:
		period := c.on + c.off
		each := period / c.gap
		periods := math.Floor(number / each)
		return periods*period + (number-periods*each)*c.gap*c.on/period
	case c.length > 0:
		return c.ramp(number)
	}
	return number * c.gap
}

// ramp solves a*t + (b-a)/(2T)*t*t = x in the form that is stable for all a
// and b above 0.
func (c *course) ramp(number float64) float64 {
	before := c.from / c.gap
	if number <= before {
		return number * c.gap
	}
	a, b := 1/c.gap, 1/c.gapTo
	x, whole := number-before, (a+b)/2*c.length
	if x >= whole {
		return c.from + c.length + (x-whole)*c.gapTo
	}
	return c.from + 2*x/(a+math.Sqrt(a*a+2*x*(b-a)/c.length))
}

// reached is the expected number at a time: the inverse of at, for steady
// rates before any ramp.
func (c *course) reached(at float64) float64 {
	if c.on > 0 {
		period := c.on + c.off
		periods := math.Floor(at / period)
		return periods*period/c.gap + min(at-periods*period, c.on)/c.on*period/c.gap
	}
	return at / c.gap
}
