// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"
	"math"
	"sort"
)

// Control is what a competitor that stands in a study twice says of the
// machine: all that its two cells differ by within a block is noise.
type Control struct {
	Blocks int `json:"blocks"`
	// Noise is by how much a figure varies within a block, as a standard
	// deviation of shares: what comparisons suffer from. Spread is by how much
	// one of the cells varies over the run, slow drift included, from which they
	// do not suffer.
	Noise  float64 `json:"noise"`
	Spread float64 `json:"spread"`
	// Needed is the number of blocks after which the joint intervals of the
	// comparison would be as narrow as the target, by the noise so far.
	Needed    int    `json:"needed"`
	Reachable bool   `json:"reachable"`
	Reason    string `json:"reason"`
}

// Check judges by two cells of the same, whether a comparison of k competitors
// can reach the target within its budget of blocks. Below the least number of
// blocks it does not say, and Needed is 0.
func (t Target) Check(cell, again Series, k int) Control {
	y := logs([]Series{cell, again})
	d := differences(y, 0, 1)
	c := Control{Blocks: len(d)}
	if len(d) < leastBlocks {
		c.Reason = fmt.Sprintf("%s and %s were both measured in %d blocks: %d are the least", cell.Name, again.Name, len(d), leastBlocks)
		return c
	}
	squares := 0.0
	for _, x := range d {
		squares += x * x // their mean is known: it is 0
	}
	c.Noise = math.Sqrt(squares / float64(2*len(d)))
	c.Spread = deviation(y)
	c.Needed = t.blocksFor(c.Noise, k)
	c.Reachable = c.Needed <= t.Most
	within := "within"
	if !c.Reachable {
		within = "beyond"
	}
	c.Reason = fmt.Sprintf("%s and %s are the same, and a figure of theirs varies by %.1f %% within a block (%.1f %% over the run): "+
		"to tell +-%.0f %% takes about %d blocks, %s the %d that there may be",
		cell.Name, again.Name, 100*c.Noise, 100*c.Spread, 100*t.HalfWidth, c.Needed, within, t.Most)
	return c
}

// deviation is the standard deviation of the first column.
func deviation(y [][]float64) float64 {
	var x []float64
	for _, row := range y {
		x = append(x, row[0])
	}
	x = Present(x)
	mean, squares := 0.0, 0.0
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		squares += (v - mean) * (v - mean)
	}
	return math.Sqrt(squares / float64(len(x)-1))
}

// mostBlocks ends a search whose answer is "never".
const mostBlocks = 100000

// blocksFor is the number of blocks for the target when each figure varies by
// noise.
func (t Target) blocksFor(noise float64, k int) int {
	pairs := float64(k*(k-1)) / 2
	freedom := 1.0 // degrees of each block
	if pairs >= leastPairs {
		freedom = float64(k - 1)
	}
	wide := func(n int) bool {
		df := freedom * float64(n-1)
		return math.Expm1(studentPoint(t.Alpha/pairs, df)*noise*math.Sqrt(2/float64(n))) > t.HalfWidth
	}
	n := 2 + sort.Search(mostBlocks, func(n int) bool { return !wide(n + 2) })
	return max(n, t.Least, Needed(k, t.Alpha))
}
