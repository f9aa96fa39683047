// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"
	"math"
	"sort"
)

// Control is what the control cell, the same cell in every block, says of the
// machine.
type Control struct {
	Blocks int `json:"blocks"`
	// Spread is by how much its figures differ over the run, as a standard
	// deviation of shares; Noise the part that is left between neighbouring
	// blocks, in which slow drift cancels. Comparisons within blocks suffer from
	// no more than the latter.
	Spread float64 `json:"spread"`
	Noise  float64 `json:"noise"`
	// Needed is the number of blocks after which the joint intervals of the
	// comparison would be as narrow as the target, by the noise so far.
	Needed    int    `json:"needed"`
	Reachable bool   `json:"reachable"`
	Reason    string `json:"reason"`
}

// Check judges by the control cell's figures, by block, whether a comparison of
// k competitors can reach the target within its budget of blocks.
func (t Target) Check(control []float64, k int) Control {
	x := Present(control)
	c := Control{Blocks: len(x)}
	if len(x) < leastBlocks {
		c.Reason = fmt.Sprintf("the control cell was measured %d times: %d are the least", len(x), leastBlocks)
		return c
	}
	mean := 0.0
	for i := range x {
		x[i] = math.Log(x[i])
		mean += x[i] / float64(len(x))
	}
	squares, steps := 0.0, 0.0
	for i := range x {
		squares += (x[i] - mean) * (x[i] - mean)
		if i > 0 {
			steps += (x[i] - x[i-1]) * (x[i] - x[i-1])
		}
	}
	n := float64(len(x) - 1)
	c.Spread, c.Noise = math.Sqrt(squares/n), math.Sqrt(steps/n/2)
	c.Needed = t.blocksFor(c.Noise, k)
	c.Reachable = c.Needed <= t.Most
	within := "which is within"
	if !c.Reachable {
		within = "which is beyond"
	}
	c.Reason = fmt.Sprintf("the same cell varies by %.1f %% from block to block (%.1f %% over the run): +-%.1f %% takes about %d blocks, %s the budget of %d",
		100*c.Noise, 100*c.Spread, 100*t.HalfWidth, c.Needed, within, t.Most)
	return c
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
