// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"slices"

	"imbang/internal/lab/stats"
)

// A late run is one in which the generator did not keep its schedule
// (load.Result.Judge). It stays in its block and is marked, and no run takes
// its place. Claims are judged twice: with every run (Cell.series) and with
// the late runs left out (Cell.onTime).

// lateBlock reports whether the cell's run in a block, from 1, was late.
func (c Cell) lateBlock(block int) bool { return slices.Contains(c.Late, block) }

// onTime is series without the late runs: their blocks hold NaN.
func (c Cell) onTime(key string) stats.Series {
	s := c.series(key)
	s.Values = slices.Clone(s.Values)
	for i := range s.Values {
		if c.lateBlock(i + 1) {
			s.Values[i] = math.NaN()
		}
	}
	return s
}
