// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"fmt"

	"imbang/internal/lab/stats"
)

// Target is a bound that a figure has to keep, and the figure. It is met if the
// interval of the figure keeps it, not the median alone, and if enough rounds
// were measured for an interval of 95 %.
type Target struct {
	Name  string        `json:"name"`
	Unit  string        `json:"unit,omitempty"` // none: a ratio
	Least float64       `json:"at_least,omitempty"`
	Most  float64       `json:"at_most,omitempty"`
	Value stats.Summary `json:"value"`
	Met   bool          `json:"met"`
	// Within is the interval of the median at the level that it states; without
	// one the range of the rounds takes its place.
	Within *stats.Interval `json:"interval,omitempty"`
	// Invalid says why the figure counts for nothing, if it does.
	Invalid string `json:"invalid,omitempty"`
}

func atLeast(name, unit string, least float64, v stats.Summary) Target {
	return Target{Name: name, Unit: unit, Least: least, Value: v}.judged()
}

func atMost(name, unit string, most float64, v stats.Summary) Target {
	return Target{Name: name, Unit: unit, Most: most, Value: v}.judged()
}

// within sets the interval.
func (t Target) within(i stats.Interval) Target {
	t.Within = &i
	return t.judged()
}

// judged sets Met. Results that were stored when the median decided are judged
// anew.
func (t Target) judged() Target {
	low, high := t.Value.Min, t.Value.Max
	if t.Within != nil && t.Within.Level > 0 {
		low, high = t.Within.Low, t.Within.High
	}
	t.Met = t.Value.N > 0 && t.keeps(low) && t.keeps(high) && !t.few() && t.Invalid == ""
	return t
}

// few reports whether the rounds are too few for the interval.
func (t Target) few() bool { return t.Within != nil && !t.Within.Reaches(confidence) }

// invalid marks a figure that does not count.
func (t Target) invalid(why string) Target {
	t.Invalid = why
	return t.judged()
}

// keeps reports whether a value is within the bound.
func (t Target) keeps(v float64) bool {
	if t.Least > 0 {
		return v >= t.Least
	}
	return v <= t.Most
}

// UnmarshalJSON reads a stored target and judges it.
func (t *Target) UnmarshalJSON(text []byte) error {
	type plain Target
	if err := json.Unmarshal(text, (*plain)(t)); err != nil {
		return err
	}
	*t = t.judged()
	return nil
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
