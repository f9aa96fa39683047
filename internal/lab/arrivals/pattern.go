// SPDX-License-Identifier: Apache-2.0

package arrivals

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Distribution says how the intended starts are spaced.
type Distribution int

const (
	// Constant spaces arrivals by exactly 1/rate.
	Constant Distribution = iota
	// Poisson draws independent exponential gaps of mean 1/rate: what many
	// independent users produce, and burstier than Constant.
	Poisson
)

// String is the name used in results and on command lines.
func (l Distribution) String() string {
	switch l {
	case Constant:
		return "constant"
	case Poisson:
		return "poisson"
	}
	return fmt.Sprintf("arrivals(%d)", int(l))
}

// parseDistribution is the inverse of String.
func parseDistribution(s string) (Distribution, error) {
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
	// distribution with gaps that keep the rate. 0 is 1.
	Batch int
	// Burst is the same with sizes by chance, of a geometric distribution
	// with this mean. 0 is none.
	Burst float64
	// On and Off alternate, On first: during Off nothing arrives, and during
	// On so much more that the rate stated is the mean.
	On, Off time.Duration
	// RampTo is where the rate goes, in a straight line from the plan's rate
	// through the counted window. 0 stays.
	RampTo float64
}

// Pattern is a distribution and its shape.
type Pattern struct {
	Distribution Distribution
	Shape        Shape
}

// Examples shows how patterns are written.
const Examples = "constant, poisson, poisson batch=10, poisson burst=20, constant on=200ms off=800ms, constant to=2000"

// Parse reads a pattern, such as one of the examples.
func Parse(text string) (p Pattern, err error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return p, fmt.Errorf("arrivals %q: want constant or poisson", text)
	}
	if p.Distribution, err = parseDistribution(words[0]); err != nil {
		return p, err
	}
	s := &p.Shape
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "batch":
			s.Batch, err = strconv.Atoi(value)
		case "burst":
			s.Burst, err = strconv.ParseFloat(value, 64)
		case "on":
			s.On, err = time.ParseDuration(value)
		case "off":
			s.Off, err = time.ParseDuration(value)
		case "to":
			s.RampTo, err = strconv.ParseFloat(value, 64)
		default:
			err = errors.New("want batch=, burst=, on= and off=, or to=")
		}
		if err != nil {
			return p, fmt.Errorf("arrivals %q: %s: %w", text, w, err)
		}
	}
	if err := s.Validate(); err != nil {
		return p, fmt.Errorf("arrivals %q: %w", text, err)
	}
	return p, nil
}

// String is the inverse of Parse.
func (p Pattern) String() string {
	text, s := p.Distribution.String(), p.Shape
	if s.Batch > 1 {
		text += fmt.Sprintf(" batch=%d", s.Batch)
	}
	if s.Burst > 1 {
		text += " burst=" + strconv.FormatFloat(s.Burst, 'g', -1, 64)
	}
	if s.On > 0 {
		text += fmt.Sprintf(" on=%s off=%s", s.On, s.Off)
	}
	if s.RampTo > 0 {
		text += " to=" + strconv.FormatFloat(s.RampTo, 'g', -1, 64)
	}
	return text
}

// MarshalText writes it as String does.
func (p Pattern) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// size is the mean one of a batch.
func (s Shape) size() float64 { return max(1, float64(s.Batch), s.Burst) }

// Validate reports what cannot be, and its remedy.
func (s Shape) Validate() error {
	switch {
	case s.Batch < 0 || s.Batch > 1e6:
		return fmt.Errorf("batch %d: want 1 to 1e6", s.Batch)
	case !(s.Burst == 0 || s.Burst >= 1 && s.Burst <= 1e6):
		return fmt.Errorf("burst %g: want a mean size of 1 to 1e6", s.Burst)
	case s.Burst > 0 && s.Batch > 0:
		return errors.New("batches have a size (batch) or a mean one (burst): give one")
	case s.On < 0 || s.Off < 0 || (s.On > 0) != (s.Off > 0):
		return fmt.Errorf("on %s, off %s: want both above 0, or neither", s.On, s.Off)
	case !(s.RampTo >= 0 && s.RampTo <= 1e7):
		return fmt.Errorf("ramp to %g: want at most 1e7 per second", s.RampTo)
	case s.RampTo > 0 && s.On > 0:
		return errors.New("a ramp and on/off periods cannot be had together")
	}
	return nil
}
