// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"slices"
)

// Interval is a confidence interval with the level that it truly has, which
// few repeats may keep below what was asked.
type Interval struct {
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Level float64 `json:"level"` // 0 to 1
}

// Reaches reports whether the interval has the level that is asked for.
func (i Interval) Reaches(level float64) bool { return i.Level >= level-1e-12 }

// within reports whether all of the interval lies within x of 0.
func (i Interval) within(x float64) bool { return -x <= i.Low && i.High <= x }

// MedianInterval is the narrowest interval between two of the samples, as far
// from the ends as each other, that holds the median of what they were drawn
// from at the level asked for. It supposes nothing of the distribution. If
// there are too few samples, it is their range, with the level that this has;
// the level of one sample is 0.
func MedianInterval(samples []float64, level float64) Interval {
	n := len(samples)
	if n == 0 {
		return Interval{}
	}
	s := slices.Sorted(slices.Values(samples))
	// The median lies below the r-th smallest if fewer than r of n fair coins
	// show heads.
	left, best := 1.0, Interval{s[0], s[n-1], 1 - math.Exp2(float64(1-n))}
	tail := 0.0
	for r := 1; r <= n/2; r++ {
		tail += left * math.Exp2(-float64(n))
		left *= float64(n-r+1) / float64(r)
		if i := (Interval{s[r-1], s[n-r], 1 - 2*tail}); i.Reaches(level) {
			best = i
		}
	}
	return best
}

// RepeatsFor is the number of repeats from which an interval of the median
// reaches a level.
func RepeatsFor(level float64) int {
	n := 1
	for 1-math.Exp2(float64(1-n)) < level {
		n++
	}
	return n
}

// walsh are the means of all pairs of the numbers, each with itself included,
// in order. Their median is Hodges and Lehmann's estimate of the middle.
func walsh(d []float64) []float64 {
	w := make([]float64, 0, len(d)*(len(d)+1)/2)
	for i, x := range d {
		for _, y := range d[i:] {
			w = append(w, (x+y)/2)
		}
	}
	slices.Sort(w)
	return w
}

// hodgesLehmann is the estimate of the middle of n numbers by their Walsh means,
// and the interval that the signed-rank test gives with it: exact for numbers
// that are symmetric about their middle. ranks is signedRank of n.
func hodgesLehmann(w, ranks []float64, n int, level float64) (float64, Interval) {
	m := len(w)
	best := Interval{w[0], w[m-1], 1 - math.Exp2(float64(1-n))}
	tail := 0.0
	for r, p := range ranks[:m/2] {
		tail += p
		i := Interval{w[r], w[m-1-r], 1 - 2*tail}
		if !i.Reaches(level) {
			break
		}
		best = i
	}
	return middle(w), best
}

// signedRank is the distribution of Wilcoxon's signed-rank sum of n numbers.
func signedRank(n int) []float64 {
	p := make([]float64, n*(n+1)/2+1)
	p[0] = 1
	for rank := 1; rank <= n; rank++ {
		for s := len(p) - 1; s >= 0; s-- {
			p[s] /= 2
			if s >= rank {
				p[s] += p[s-rank] / 2
			}
		}
	}
	return p
}

// Difference is by what share b is greater than a in the same blocks, by Hodges
// and Lehmann, and the interval that signed ranks give with it.
func Difference(a, b Series, level float64) (float64, Interval) {
	d := differences(logs([]Series{a, b}), 0, 1)
	if len(d) == 0 {
		return 0, Interval{}
	}
	middle, i := hodgesLehmann(walsh(d), signedRank(len(d)), len(d), level)
	return math.Expm1(middle), shares(i)
}
