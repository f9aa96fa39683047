// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"math"

	"imbang/internal/lab/stats"
)

// Figure is a median with its range, with the digits that mean something.
func Figure(s stats.Summary) string {
	if s.N == 0 {
		return "none"
	}
	digits := decimals(s.Median)
	if s.N == 1 {
		return fmt.Sprintf("%.*f", digits, s.Median)
	}
	return fmt.Sprintf("%.*f (%.*f to %.*f)", digits, s.Median, digits, s.Min, digits, s.Max)
}

// Between is a median with the interval that holds it; where there is
// none, with its range.
func Between(s stats.Summary, within stats.Interval) string {
	if within.Level > 0 {
		s.Min, s.Max = within.Low, within.High
	}
	return Figure(s)
}

// Figure is what the target's figure is.
func (t Target) Figure() string {
	if t.Within == nil {
		return Figure(t.Value)
	}
	return Between(t.Value, *t.Within)
}

// decimals is how many a figure of this size deserves: three digits in all.
func decimals(v float64) int {
	if v = math.Abs(v); v == 0 {
		return 0
	}
	return min(3, max(0, 2-int(math.Floor(math.Log10(v)))))
}

// Bound is what a target asks for.
func (t Target) Bound() string {
	if t.Least > 0 {
		return fmt.Sprintf("at least %.4g%s", t.Least, unit(t.Unit))
	}
	return fmt.Sprintf("at most %.4g%s", t.Most, unit(t.Unit))
}

// Verdict says whether it is met.
func (t Target) Verdict() string {
	switch {
	case t.Met:
		return "met"
	case t.Invalid != "":
		return "missed: " + t.Invalid
	case t.few() && t.Value.N > 0:
		return "missed: too few rounds for an interval of 95 %"
	case t.Value.N > 0 && t.keeps(t.Value.Median):
		return "missed: the median meets it, the interval does not"
	}
	return "missed"
}

func unit(u string) string {
	if u == "" {
		return ""
	}
	return " " + u
}
