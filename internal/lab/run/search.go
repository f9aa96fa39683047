// SPDX-License-Identifier: Apache-2.0

package run

import "math"

const (
	// closeEnough ends a search: the lowest rate that failed is at most this
	// many times the highest that passed.
	closeEnough = 1.08
	// raise is the factor of a rate's first steps upward, until one fails.
	raise = 1.25
	// lower is that of the first steps downward, until one passes.
	lower = 0.6
	// votes decide a rate: it passes or fails when most of them agree.
	votes = 3
)

// search finds the highest rate that passes a probe. Probes are noisy, so a
// rate is decided by the majority of votes; the search ends when the rate is
// known closely enough, or after a number of probes.
type search struct {
	left      int     // probes that may still be made
	rate      float64 // the one under way
	yes, no   int     // of its votes
	low, high float64 // the highest rate that passed, the lowest that failed; 0: none
	lowest    float64 // that was probed
}

func newSearch(first float64, probes int) *search {
	return &search{left: probes, rate: first, lowest: first}
}

// next is the rate to probe, false when the search is over.
func (s *search) next() (float64, bool) {
	if s.left == 0 || s.low > 0 && s.high > 0 && s.high/s.low <= closeEnough {
		return 0, false
	}
	return s.rate, true
}

// tell enters what the probe of next came to.
func (s *search) tell(passed bool) {
	s.left--
	if passed {
		s.yes++
	} else {
		s.no++
	}
	switch {
	case s.yes > votes/2:
		s.low = s.rate
	case s.no > votes/2:
		s.high = s.rate
	default:
		return
	}
	s.yes, s.no = 0, 0
	switch {
	case s.high == 0:
		s.rate = s.low * raise
	case s.low == 0:
		s.rate = s.high * lower
	default:
		s.rate = math.Sqrt(s.low * s.high)
	}
	if s.left > 0 {
		s.lowest = min(s.lowest, s.rate)
	}
}

// result is the highest rate that passed; without any, the lowest probed.
func (s *search) result() (rate float64, found bool) {
	if s.low > 0 {
		return s.low, true
	}
	return s.lowest, false
}
