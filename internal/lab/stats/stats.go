// SPDX-License-Identifier: Apache-2.0

// Package stats says what repeated measurements show and what they do not. It
// is pure arithmetic on numbers and imports nothing of this module.
package stats

import (
	"math"
	"slices"
)

// Summary describes the repeats of one cell.
type Summary struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Summarize returns the median and range of samples; N is 0 for none.
func Summarize(samples []float64) Summary {
	if len(samples) == 0 {
		return Summary{}
	}
	s := slices.Sorted(slices.Values(samples))
	n := len(s)
	return Summary{N: n, Median: (s[(n-1)/2] + s[n/2]) / 2, Min: s[0], Max: s[n-1]}
}

// Overlaps reports whether two ranges share a value.
func (s Summary) Overlaps(o Summary) bool { return s.Min <= o.Max && o.Min <= s.Max }

// Group is a named set of repeats to be compared with others.
type Group struct {
	Name    string
	Samples []float64
}

// Verdict is what a comparison of groups may claim.
type Verdict struct {
	// Leader is the index of the group with the best median.
	Leader int
	// Overlapping are the indices of the groups whose range meets the
	// leader's. Only when there are none does the leader stand apart.
	Overlapping []int
	// Chance is the probability that some group stands apart as the leader
	// must, when in truth all groups draw from one distribution.
	Chance float64
}

// MaxChance is the largest chance of luck at which a leader is named.
const MaxChance = 0.05

// Apart reports whether the leader may be called best: its range meets no
// other, and luck explains that in fewer than one in twenty comparisons.
func (v Verdict) Apart() bool { return len(v.Overlapping) == 0 && v.Chance < MaxChance }

// Compare finds the group with the best median, the lowest or the highest, and
// how far it can be told from the others. Empty groups are left out; ok is
// false when fewer than two are left.
func Compare(groups []Group, lowest bool) (v Verdict, ok bool) {
	var sizes []int
	v.Leader = -1
	sums := make([]Summary, len(groups))
	for i, g := range groups {
		sums[i] = Summarize(g.Samples)
		if sums[i].N == 0 {
			continue
		}
		sizes = append(sizes, sums[i].N)
		if v.Leader < 0 || better(sums[i].Median, sums[v.Leader].Median, lowest) {
			v.Leader = i
		}
	}
	if len(sizes) < 2 {
		return v, false
	}
	for i := range groups {
		if i != v.Leader && sums[i].N > 0 && sums[i].Overlaps(sums[v.Leader]) {
			v.Overlapping = append(v.Overlapping, i)
		}
	}
	v.Chance = chanceApart(sizes)
	return v, true
}

func better(a, b float64, lowest bool) bool {
	if lowest {
		return a < b
	}
	return a > b
}

// chanceApart is the probability that, of N exchangeable numbers dealt into
// groups of these sizes, one group gets all of the extreme ones on the good
// side: for a group of n that is one in (N choose n), and only one group can.
func chanceApart(sizes []int) float64 {
	total := 0
	for _, n := range sizes {
		total += n
	}
	p := 0.0
	for _, n := range sizes {
		p += math.Exp(-logChoose(total, n))
	}
	return math.Min(p, 1)
}

func logChoose(n, k int) float64 {
	lg := func(x int) float64 { v, _ := math.Lgamma(float64(x) + 1); return v }
	return lg(n) - lg(k) - lg(n-k)
}
