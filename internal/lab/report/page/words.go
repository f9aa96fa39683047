// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"imbang/internal/lab/report"
	"imbang/internal/lab/stats"
)

// sortBy sorts by a number, equals as they were.
func sortBy[T any](list []T, by func(T) float64) {
	slices.SortStableFunc(list, func(a, b T) int { return cmp.Compare(by(a), by(b)) })
}

func sentenceCase(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(r)) + s[n:]
}

// decimalsOf is the number of digits behind the point that a level has.
func decimalsOf(v float64) int {
	if v == math.Trunc(v) {
		return 0
	}
	return 2
}

// listed joins names as a sentence does.
func listed(names []string) string {
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return strings.Join(names, "")
}

// percent writes a share with its sign, a real minus included.
func percent(share float64) string {
	return strings.NewReplacer("-", "−", " %", "\u00a0%").Replace(stats.Percent(share))
}

func span(i stats.Interval) string { return percent(i.Low) + " to " + percent(i.High) }

// unit is a metric's unit as it follows a figure.
func unit(m report.Metric) string {
	if m.Unit == "1/s" {
		return "/s"
	}
	return "\u00a0" + strings.Replace(m.Unit, "us/", "µs/", 1)
}

// stated is a metric's figure with its interval.
func stated(m report.Metric, v report.Value) string {
	s := grouped(v.Median, m.Decimals) + unit(m)
	if v.Interval != nil {
		s += " (" + grouped(v.Interval.Low, m.Decimals) + " to " + grouped(v.Interval.High, m.Decimals) + ")"
	}
	return s
}
