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

// of takes a number out of a value of a benchmark's result, which has no
// intervals and nothing published.
func (s stat) of(v any) (float64, bool) {
	if s == "low" || s == "high" || s == "published" {
		return 0, false
	}
	if o, ok := v.(map[string]any); ok {
		key := "median"
		if s == "min" || s == "max" {
			key = string(s)
		}
		v = o[key]
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
