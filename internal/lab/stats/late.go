// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"slices"
)

// late reports whether the load generator was late in a block, counted from 0.
func (s Series) late(block int) bool { return block < len(s.Late) && s.Late[block] }

// lateIn counts the figures that come from late runs.
func lateIn(series []Series) (n int) {
	for _, s := range series {
		for b, v := range s.Values {
			if s.late(b) && !math.IsNaN(v) {
				n++
			}
		}
	}
	return n
}

// onTime is the series without the figures of late runs.
func onTime(series []Series) []Series {
	out := slices.Clone(series)
	for i := range out {
		out[i].Values = slices.Clone(out[i].Values)
		for b := range out[i].Values {
			if out[i].late(b) {
				out[i].Values[b] = math.NaN()
			}
		}
	}
	return out
}
