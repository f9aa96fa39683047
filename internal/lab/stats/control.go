// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"
	"math"
)

// Control is what a competitor that is in a study twice shows of the machine:
// its two cells differ within a block by noise alone.
type Control struct {
	Blocks int `json:"blocks"`
	// Noise is the standard deviation of a figure within a block, as a share:
	// what comparisons suffer from. Spread is that of one of the cells over the
	// run, drift included, from which they do not suffer.
	Noise  float64 `json:"noise"`
	Spread float64 `json:"spread"`
	Reason string  `json:"reason"`
}

// Check compares two cells of the same competitor.
func Check(cell, again Series) Control {
	y := logs([]Series{cell, again})
	d := differences(y, 0, 1)
	c := Control{Blocks: len(d)}
	if len(d) < leastBlocks {
		c.Reason = fmt.Sprintf("%s and %s were both measured in %d blocks, at least %d are needed", cell.Name, again.Name, len(d), leastBlocks)
		return c
	}
	squares := 0.0
	for _, x := range d {
		squares += x * x // their mean is known: it is 0
	}
	c.Noise = math.Sqrt(squares / float64(2*len(d)))
	c.Spread = deviation(y)
	c.Reason = fmt.Sprintf("%s and %s are the same competitor; one figure varies by %.1f %% within a block and by %.1f %% over the run",
		cell.Name, again.Name, 100*c.Noise, 100*c.Spread)
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
