// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"slices"
)

// tested is what both tests say of every pair of columns.
type tested []testedPair

// testedPair is a contrast with its p-values, which account for all pairs, and
// the ends of its joint interval.
type testedPair struct {
	contrast
	student, relabelling float64
	low, high            float64
}

// p is the p-value of a claim: both tests have to allow it.
func (t testedPair) p() float64 { return max(t.student, t.relabelling) }

// test asks both tests of every pair. Pairs with too few blocks for a claim get
// the p-value 1.
func test(y [][]float64, list []contrast, q Question) tested {
	out := make(tested, len(list))
	m := float64(len(list))
	point := studentPoints(q.Alpha / m)
	least := leastFor(len(y[0]), q.Alpha)
	asked := make([]bool, len(list))
	for i, c := range list {
		t := testedPair{contrast: c, student: 1, relabelling: 1, low: math.Inf(-1), high: math.Inf(1)}
		if c.n >= 2 {
			half := point(c.df) * c.standardError()
			t.low, t.high = c.mean-half, c.mean+half
		}
		if c.n >= least {
			t.student = min(1, m*studentTails(c.t, c.df))
		}
		asked[i], out[i] = t.student <= q.Alpha, t
	}
	if !slices.Contains(asked, true) {
		return out
	}
	for i, p := range byRelabelling(y, list, q.Arrangements) {
		if asked[i] {
			out[i].relabelling = p
		}
	}
	return out
}

// pair is the comparison of column b with column a, in either order.
func (list tested) pair(a, b int) testedPair {
	i := slices.IndexFunc(list, func(t testedPair) bool { return t.a == min(a, b) && t.b == max(a, b) })
	t := list[i]
	if a > b {
		t.a, t.b, t.mean, t.low, t.high = a, b, -t.mean, -t.high, -t.low
	}
	return t
}
