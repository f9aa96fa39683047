// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"
	"math"
)

// Size says in a word how much a difference is, given as a share of the better
// one, when differences below smallest are of no interest.
func Size(difference, smallest float64) string {
	factor := math.Exp(math.Abs(math.Log1p(difference)))
	switch {
	case factor < 1+smallest:
		return "negligible"
	case factor < 1.10:
		return "small"
	case factor < 1.50:
		return "marked"
	case factor < 3:
		return "large"
	}
	return "huge"
}

// Percent writes a share with its sign.
func Percent(share float64) string {
	p := 100 * share
	if math.Abs(p) < 0.05 {
		return "0.0 %"
	}
	if math.Abs(p) >= 99.95 {
		return fmt.Sprintf("%+.0f %%", p)
	}
	return fmt.Sprintf("%+.1f %%", p)
}

// String is the interval of a share in words.
func (i Interval) String() string { return Percent(i.Low) + " to " + Percent(i.High) }
