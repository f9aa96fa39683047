// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Arrivals says how the intended starts are spaced.
type Arrivals int

const (
	// Constant spaces arrivals by exactly 1/rate.
	Constant Arrivals = iota
	// Poisson draws independent exponential gaps of mean 1/rate: what many
	// independent users produce, and burstier than Constant.
	Poisson
)

// String is the name used in results and on command lines.
func (a Arrivals) String() string {
	switch a {
	case Constant:
		return "constant"
	case Poisson:
		return "poisson"
	}
	return fmt.Sprintf("arrivals(%d)", int(a))
}

// ParseArrivals is the inverse of String.
func ParseArrivals(s string) (Arrivals, error) {
	switch s {
	case "constant":
		return Constant, nil
	case "poisson":
		return Poisson, nil
	}
	return 0, fmt.Errorf("arrivals %q: want constant or poisson", s)
}

// Shape is what happens to arrivals over time; the zero value is a steady
// rate of single arrivals.
type Shape struct {
	// Batch arrivals come at one instant, and the batches are spaced by the
	// plan's law with gaps that keep the rate. 0 is 1.
	Batch int
	// On and Off alternate, On first: during Off nothing arrives, and during
	// On so much more that the plan's rate is the mean.
	On, Off time.Duration
	// RampTo is where the rate goes, in a straight line from the plan's rate
	// through the counted window. 0 stays.
	RampTo float64
}

// ParsePattern reads a law and its shape, such as "poisson",
// "poisson batch=10", "constant on=200ms off=800ms" or "constant to=2000".
func ParsePattern(text string) (a Arrivals, s Shape, err error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return 0, s, fmt.Errorf("arrivals %q: want constant or poisson", text)
	}
	if a, err = ParseArrivals(words[0]); err != nil {
		return 0, s, err
	}
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "batch":
			s.Batch, err = strconv.Atoi(value)
		case "on":
			s.On, err = time.ParseDuration(value)
		case "off":
			s.Off, err = time.ParseDuration(value)
		case "to":
			s.RampTo, err = strconv.ParseFloat(value, 64)
		default:
			err = errors.New("want batch=, on= and off=, or to=")
		}
		if err != nil {
			return 0, s, fmt.Errorf("arrivals %q: %s: %w", text, w, err)
		}
	}
	if err := s.validate(); err != nil {
		return 0, s, fmt.Errorf("arrivals %q: %w", text, err)
	}
	return a, s, nil
}

// Pattern is the inverse of ParsePattern.
func Pattern(a Arrivals, s Shape) string {
	text := a.String()
	if s.Batch > 1 {
		text += fmt.Sprintf(" batch=%d", s.Batch)
	}
	if s.On > 0 {
		text += fmt.Sprintf(" on=%s off=%s", s.On, s.Off)
	}
	if s.RampTo > 0 {
		text += " to=" + strconv.FormatFloat(s.RampTo, 'g', -1, 64)
	}
	return text
}

func (s Shape) validate() error {
	switch {
	case s.Batch < 0 || s.Batch > 1e6:
		return fmt.Errorf("batch %d: want 1 to 1e6", s.Batch)
	case s.On < 0 || s.Off < 0 || (s.On > 0) != (s.Off > 0):
		return fmt.Errorf("on %s, off %s: want both above 0, or neither", s.On, s.Off)
	case !(s.RampTo >= 0 && s.RampTo <= 1e7):
		return fmt.Errorf("ramp to %g: want at most 1e7 per second", s.RampTo)
	case s.RampTo > 0 && s.On > 0:
		return errors.New("a ramp and on/off periods cannot be had together")
	}
	return nil
}
