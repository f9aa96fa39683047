// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"fmt"
	"slices"
	"strings"
)

// stat says which of several values a figure is.
type stat string

var stats = []stat{"median", "min", "max", "low", "high", "least", "most", "published"}

// statistic takes the key stat.
func statistic(q query) (stat, error) {
	s := stat(q.take("stat", "median"))
	if !slices.Contains(stats, s) {
		var names []string
		for _, x := range stats {
			names = append(names, string(x))
		}
		return s, fmt.Errorf("stat=%s: want one of %s", s, strings.Join(names, ", "))
	}
	return s, nil
}

// of takes a number out of a value of a benchmark's result, which has nothing published, and
// an interval only where the result has one.
func (s stat) of(v any) (float64, bool) {
	o, several := v.(map[string]any)
	switch {
	case s == "published":
		return 0, false
	case s == "low" || s == "high":
		interval, _ := o["interval"].(map[string]any)
		v = interval[string(s)]
	case several && (s == "min" || s == "max"):
		v = o[string(s)]
	case several:
		v = o["median"]
	}
	x, ok := v.(float64)
	return x, ok
}

// one takes one of the values of the selected rows.
func (s stat) one(values []float64) (float64, error) {
	switch {
	case len(values) == 0:
		return 0, fmt.Errorf("nothing has been selected")
	case s == "least":
		return slices.Min(values), nil
	case s == "most":
		return slices.Max(values), nil
	case len(values) > 1:
		return 0, fmt.Errorf("%d rows have been selected: select one, or take stat=least or stat=most", len(values))
	}
	return values[0], nil
}
