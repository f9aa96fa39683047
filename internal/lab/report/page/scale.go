// SPDX-License-Identifier: Apache-2.0

package page

import (
	"math"
	"strconv"
	"strings"
)

// scale maps figures to pixels, from the one end to the other.
type scale struct {
	low, high float64 // of the figures
	from, to  float64 // in pixels
	log       bool
	ticks     []float64
}

// logFrom is the ratio of the greatest to the least figure from which a scale
// is logarithmic.
const logFrom = 12

// newScale is a scale on which all figures have room, with about n ticks.
func newScale(figures []float64, from, to float64, n int) scale {
	s := scale{low: math.Inf(1), high: math.Inf(-1), from: from, to: to}
	for _, f := range figures {
		if !math.IsNaN(f) && !math.IsInf(f, 0) {
			s.low, s.high = min(s.low, f), max(s.high, f)
		}
	}
	if s.low > s.high {
		s.low, s.high = 0, 1
	}
	s.log = s.low > 0 && s.high/s.low >= logFrom
	if s.log {
		pad := math.Pow(s.high/s.low, 0.04)
		s.low, s.high = s.low/pad, s.high*pad
		s.ticks = logTicks(s.low, s.high, n)
		return s
	}
	pad := (s.high - s.low) * 0.06
	if pad <= math.Abs(s.high)*1e-9 { // all alike
		pad = max(math.Abs(s.high)*0.05, 1e-3)
	}
	nought := s.low >= 0 && s.low-pad < 0 // a margin must not suggest less than nothing
	s.low, s.high = s.low-pad, s.high+pad
	if nought {
		s.low = 0
	}
	s.ticks = linearTicks(s.low, s.high, n)
	for more := n + 1; len(s.ticks) < 2 && more < n+4; more++ { // one tick tells no scale
		s.ticks = linearTicks(s.low, s.high, more)
	}
	return s
}

// fromZero is a scale from 0 to the greatest figure.
func fromZero(high, from, to float64, n int) scale {
	if high <= 0 {
		high = 1
	}
	s := scale{high: high * 1.04, from: from, to: to}
	s.ticks = linearTicks(0, s.high, n)
	return s
}

// at is the pixel of a figure.
func (s scale) at(v float64) float64 {
	part := 0.0
	if s.log {
		part = math.Log(max(v, s.low)/s.low) / math.Log(s.high/s.low)
	} else {
		part = (v - s.low) / (s.high - s.low)
	}
	return s.from + min(1, max(0, part))*(s.to-s.from)
}

// label writes a tick with the digits that tell it from its neighbours.
func (s scale) label(v float64) string {
	if s.log {
		return figure(v)
	}
	step := math.Abs(s.high - s.low)
	if len(s.ticks) > 1 {
		step = s.ticks[1] - s.ticks[0]
	}
	return grouped(v, max(0, int(math.Ceil(-math.Log10(step)-1e-9))))
}

func linearTicks(low, high float64, n int) []float64 {
	step := niceStep((high - low) / float64(max(1, n)))
	var out []float64
	for i := math.Ceil(low/step - 1e-9); i*step <= high*(1+1e-12); i++ {
		out = append(out, i*step+0) // never -0
	}
	return out
}

// niceStep is the least of 1, 2, 5 times a power of ten that is no less.
func niceStep(least float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(least)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= least*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// logTicks are powers of ten, with 2 and 5 between where there is room.
func logTicks(low, high float64, n int) []float64 {
	var best []float64
	for _, among := range [][]float64{{1, 2, 5}, {1, 3}, {1}} {
		var out []float64
		for e := math.Floor(math.Log10(low)); e <= math.Log10(high); e++ {
			for _, m := range among {
				if v := m * math.Pow(10, e); v >= low && v <= high {
					out = append(out, v)
				}
			}
		}
		if best == nil || len(out) >= 2 {
			best = out
		}
		if len(out) <= n+1 {
			break
		}
	}
	for len(best) > n+2 {
		var fewer []float64
		for i := 0; i < len(best); i += 2 {
			fewer = append(fewer, best[i])
		}
		best = fewer
	}
	return best
}

// figure writes a number with as many digits as tell something.
func figure(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case a >= 100:
		return grouped(v, 0)
	case a >= 10:
		return trimmed(v, 1)
	case a >= 1:
		return trimmed(v, 2)
	default:
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
}

func trimmed(v float64, decimals int) string {
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}

// brief writes a metric's figure beside its mark: three digits, or as many as
// the whole part has.
func brief(v float64, decimals int) string {
	switch a := math.Abs(v); {
	case a >= 99.95:
		decimals = 0
	case a >= 9.995:
		decimals = min(decimals, 1)
	}
	return grouped(v, decimals)
}

// thin is a narrow space that does not break.
const thin = "\u202f"

// grouped writes a number with U+2212 as its minus sign and, from ten
// thousand on, a space between its thousands.
func grouped(v float64, decimals int) string {
	s := strconv.FormatFloat(math.Abs(v), 'f', decimals, 64)
	whole, rest, _ := strings.Cut(s, ".")
	if len(whole) > 4 {
		for i := len(whole) - 3; i > 0; i -= 3 {
			whole = whole[:i] + thin + whole[i:]
		}
	}
	if rest != "" {
		whole += "." + rest
	}
	if v < 0 && strings.Trim(s, "0.") != "" {
		return "−" + whole
	}
	return whole
}
