// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"

	"imbang/internal/lab/stats"
)

// The variants in which claims have to hold, by their names in the report.
const (
	withoutLate  = "without late runs"
	withoutDelay = "without generator delay"
)

// seriesOf is one series for each group of competitors that are the same by
// definition.
func seriesOf(groups [][]Cell, key string, of func(c Cell, key string) stats.Series) (list []stats.Series) {
	for _, g := range groups {
		var all []stats.Series
		for _, c := range g {
			all = append(all, of(c, key))
		}
		list = append(list, stats.Join(all))
	}
	return list
}

// variantsOf are the variants of a metric: without late runs, if there are any,
// and of a latency without generator delay.
func variantsOf(groups [][]Cell, key string) (list []stats.Variant) {
	late := slices.ContainsFunc(groups, func(g []Cell) bool {
		return slices.ContainsFunc(g, func(c Cell) bool { return len(c.Late) > 0 })
	})
	if late {
		list = append(list, stats.Variant{Name: withoutLate, Series: seriesOf(groups, key, Cell.onTime)})
	}
	if slices.ContainsFunc(latencies, func(l latency) bool { return l.key == key }) {
		list = append(list, stats.Variant{Name: withoutDelay, Series: seriesOf(groups, key, Cell.undelayed)})
	}
	return list
}
