// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"

	"imbang/internal/lab/record"
	"imbang/internal/lab/stats"
)

// precision is how far from the truth a tool's printing may bring a figure: half
// a unit of the last digit.
type precision struct {
	duration           float64 // [s], which rates are divided by
	mean, tail, netKBs float64 // [ms], [ms], [KB/s]; 0: none
}

// printed are the tools that round. The built-in generator and ping keep their
// digits; ab computes its mean before it rounds.
var printed = map[string]precision{
	// "Time taken for tests: 0.005 seconds"; percentiles are whole milliseconds.
	"ab": {duration: 0.0005, tail: 0.5},
	// "test-duration 2.980 s", "Net I/O: 376.2 KB/s", "Reply time [ms]: response
	// 9.1 transfer 0.0", whose sum is the mean.
	"httperf": {duration: 0.0005, mean: 0.1, netKBs: 0.05},
	// "Elapsed time: 0.75 secs", "Response time: 0.03 secs". Siege 4.2 prints
	// milliseconds with as many decimals, which this takes for the others'.
	"siege": {duration: 0.005, mean: 5},
	// "in 3.00s". Its response times are not used, see timed.
	"wrk": {duration: 0.005},
}

// rounding is how far from the truth a metric of a sample may be by its printing.
func rounding(key string, s record.Sample) float64 {
	p := printed[s.Tool]
	switch key {
	case "reply_rate":
		if s.Load.WindowSeconds > 0 {
			return s.Load.ReplyRate * p.duration / s.Load.WindowSeconds
		}
	case "throughput":
		return p.netKBs
	case "response_time":
		return p.mean
	case tail:
		return p.tail
	}
	return 0
}

// enterRounding keeps it, block by block.
func (c *Cell) enterRounding(key string, s record.Sample) {
	if _, rounds := printed[s.Tool]; !rounds {
		return
	}
	for len(c.rounded[key]) < s.Block {
		c.rounded[key] = append(c.rounded[key], math.NaN())
	}
	c.rounded[key][s.Block-1] = rounding(key, s)
}

// roundingOf is that of the cell's series.
func (c Cell) roundingOf(key string) float64 {
	return stats.RoundingOf(c.blocks[key], c.rounded[key])
}
