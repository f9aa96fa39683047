// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// contrast is what the blocks say of one pair of columns.
type contrast struct {
	a, b     int
	n        int     // blocks that hold both
	mean     float64 // of the differences b - a
	variance float64 // of one difference, as measured
	moderate float64 // the same, moderated
	df       float64 // degrees of freedom of the moderated variance
	t        float64 // the mean's distance from 0, in its standard errors
}

// standardError is that of the mean.
func (c contrast) standardError() float64 { return math.Sqrt(c.moderate / float64(c.n)) }

// leastVariance stands for no noise at all: figures that repeat exactly.
const leastVariance = 1e-18

// contrasts compares every pair of columns of y, which has a row a block and
// NaN for what is missing. The list is written over out.
func contrasts(y [][]float64, out []contrast) []contrast {
	list, k := out[:0], len(y[0])
	for a := range k {
		for b := a + 1; b < k; b++ {
			list = append(list, newContrast(y, a, b))
		}
	}
	prior, common := moderation(list)
	for i := range list {
		c := &list[i]
		if c.n < 2 {
			continue
		}
		own := float64(c.n - 1)
		c.df = prior + own
		c.moderate = max(leastVariance, (prior*common+own*c.variance)/c.df)
		c.t = math.Abs(c.mean) / c.standardError()
	}
	return list
}

func newContrast(y [][]float64, a, b int) contrast {
	c := contrast{a: a, b: b}
	sum, squares := 0.0, 0.0
	for _, row := range y {
		if d := row[b] - row[a]; d == d { // neither is missing
			c.n++
			sum += d
			squares += d * d
		}
	}
	n := float64(c.n)
	if c.n > 0 {
		c.mean = sum / n
	}
	if c.n > 1 {
		c.variance = max(0, squares-sum*c.mean) / (n - 1)
	}
	return c
}

// Fewer pairs than leastPairs say too little about how alike variances are.
const leastPairs = 15

// moderation estimates how alike the variances of the pairs are: as if each had
// been known by prior degrees of freedom beforehand, to be common (Smyth 2004,
// by the moments of the logarithms). It is never worth more than pooling all
// columns is.
func moderation(list []contrast) (prior, common float64) {
	if len(list) < leastPairs {
		return 0, 0
	}
	pooled, own := 0.0, 0.0
	for _, c := range list {
		if c.n < 2 {
			return 0, 0
		}
		pooled += c.variance / float64(len(list))
		own += float64(c.n-1) / float64(len(list))
	}
	if pooled <= leastVariance {
		return 0, 0
	}
	k := (1 + math.Sqrt(1+8*float64(len(list)))) / 2
	limit := (k - 2) * own
	mean, excess := logMoments(list, k, pooled)
	if excess > 0 {
		prior = 2 * trigammaInverse(excess)
	}
	if excess <= 0 || prior > limit {
		return limit, pooled
	}
	return prior, math.Exp(mean + mathext.Digamma(prior/2) - math.Log(prior/2))
}

// smallestShare of the mean variance is what counts as the variance of a pair
// that shows less: rounded figures may agree by chance.
const smallestShare = 1e-3

// logMoments are the mean of the logarithms of the variances and how much more
// they vary than variances do that are the same in truth.
func logMoments(list []contrast, k, pooled float64) (mean, excess float64) {
	var squares, chance, shift, spread float64
	n := -1
	for i, c := range list {
		if c.n != n {
			n = c.n
			half := float64(n-1) / 2
			shift, spread = math.Log(half)-mathext.Digamma(half), trigamma(half)
		}
		e := math.Log(max(c.variance, smallestShare*pooled)) + shift
		delta := e - mean
		mean += delta / float64(i+1)
		squares += delta * (e - mean)
		chance += spread
	}
	m := float64(len(list))
	// Pairs that share a column are alike for that reason: correlated by a
	// quarter, in (k-2)/(m-1) x 2 of the cases.
	shared := 0.25 * 2 * (k - 2) / (m - 1)
	return mean, squares/(m-1)/(1-shared) - chance/m
}

// trigamma is the derivative of digamma.
func trigamma(x float64) float64 {
	s := 0.0
	for ; x < 6; x++ {
		s += 1 / (x * x)
	}
	r := 1 / (x * x)
	return s + 1/x + r/2 + r/x*(1./6-r*(1./30-r/42))
}

// trigammaInverse solves trigamma(x) = y by Newton's method on 1/trigamma, which
// is convex and nearly straight (Smyth 2004, appendix).
func trigammaInverse(y float64) float64 {
	x := 0.5 + 1/y
	for range 50 {
		t := trigamma(x)
		step := t * (1 - t/y) / tetragamma(x)
		if x += step; -step < 1e-8*x {
			break
		}
	}
	return x
}

// tetragamma is the derivative of trigamma.
func tetragamma(x float64) float64 {
	s := 0.0
	for ; x < 6; x++ {
		s -= 2 / (x * x * x)
	}
	r := 1 / (x * x)
	return s - r - r/x - r*r*(1./2-r*(1./6-r/6))
}

// studentTails is P(|T| > t) of Student's t.
func studentTails(t, df float64) float64 { return mathext.RegIncBeta(df/2, 0.5, df/(df+t*t)) }

// studentPoint is the t that |T| exceeds with probability p.
func studentPoint(p, df float64) float64 {
	x := mathext.InvRegIncBeta(df/2, 0.5, p)
	return math.Sqrt(df * (1 - x) / x)
}

// studentPoints is studentPoint of one p, which remembers the last df: mostly
// all pairs have the same.
func studentPoints(p float64) func(df float64) float64 {
	last, point := math.NaN(), 0.0
	return func(df float64) float64 {
		if df != last {
			last, point = df, studentPoint(p, df)
		}
		return point
	}
}
