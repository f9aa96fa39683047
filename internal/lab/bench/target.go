// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"

	"imbang/internal/lab/stats"
)

// Target is what a figure shall be, and what it is. It is met if the median is;
// nothing is left out because it is not.
type Target struct {
	Name  string        `json:"name"`
	Unit  string        `json:"unit,omitempty"` // none: a ratio
	Least float64       `json:"at_least,omitempty"`
	Most  float64       `json:"at_most,omitempty"`
	Value stats.Summary `json:"value"`
	Met   bool          `json:"met"`
	// Within holds the median of ever more such figures with the confidence
	// that it says.
	Within *stats.Interval `json:"interval,omitempty"`
}

func atLeast(name, unit string, least float64, v stats.Summary) Target {
	return Target{Name: name, Unit: unit, Least: least, Value: v, Met: v.N > 0 && v.Median >= least}
}

func atMost(name, unit string, most float64, v stats.Summary) Target {
	return Target{Name: name, Unit: unit, Most: most, Value: v, Met: v.N > 0 && v.Median <= most}
}

// Interrupted says that a benchmark ended before its time; what was finished
// comes with it.
type Interrupted struct {
	Done, All int
	Of        string // what was counted
	Err       error
}

func (i *Interrupted) Error() string {
	return fmt.Sprintf("interrupted: %d of %d %s finished, which are reported", i.Done, i.All, i.Of)
}

func (i *Interrupted) Unwrap() error { return i.Err }
