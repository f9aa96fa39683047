// SPDX-License-Identifier: Apache-2.0

package stats

import "slices"

// Series is what was measured of one competitor.
type Series struct {
	Name string
	// Values has one figure a block, NaN where there is none.
	Values []float64
	// Out says why the competitor cannot be judged, if so.
	Out []string
	// Rounding bounds what rounding did to the mean of the figures' logarithms;
	// 0 of figures that have all their digits.
	Rounding float64
}

// Variant is another version of the series, such as that without the runs in
// which the load generator was late. Claims have to hold in it too.
type Variant struct {
	Name   string
	Series []Series // found by their names
}

// Question is what is asked of the series of one metric.
type Question struct {
	LessIsBetter bool
	// Alpha is the probability, at most, that any claim is false.
	Alpha float64
	// Smallest is the smallest difference of interest, as a share.
	Smallest float64
	// Arrangements bounds the work of the relabelling test.
	Arrangements Arrangements
}

// NewQuestion is the usual question: claims at 5 %, differences of 2 %.
func NewQuestion(lessIsBetter bool) Question {
	return Question{LessIsBetter: lessIsBetter, Alpha: 0.05, Smallest: 0.02, Arrangements: usualArrangements}
}

// Outcome is the verdict in one word.
type Outcome string

// The outcomes.
const (
	Winner        Outcome = "winner"         // one is better than every other
	Groups        Outcome = "groups"         // the best does not differ from all others
	AllEqual      Outcome = "equal"          // all differ by less than is of interest
	TooFewBlocks  Outcome = "too few blocks" // nothing could be claimed
	NotMeasurable Outcome = "not measurable" // fewer than two can be judged
)

// Finding is what is known of a pair.
type Finding string

// The findings.
const (
	Different Finding = "different"                 // significantly, and by what is of interest
	Slight    Finding = "slight"                    // significantly, but the estimate is smaller
	Equal     Finding = "equal"                     // the joint interval excludes what is of interest
	Unclear   Finding = "no significant difference" // the joint interval says how large one may be
)

// Pair compares two competitors; A is the one that ranks before.
type Pair struct {
	A       string  `json:"a"`
	B       string  `json:"b"`
	Blocks  int     `json:"blocks"`
	Finding Finding `json:"finding"`
	// Difference is by what share B is greater than A, by Hodges and Lehmann.
	Difference float64 `json:"difference"`
	// Joint holds the difference; all pairs' intervals do at once, at its level.
	Joint Interval `json:"joint"`
	// Own is the signed-rank interval of this pair alone.
	Own Interval `json:"own"`
	// P is the greatest of the p-values, which account for all pairs: of both
	// tests and of every variant.
	P            float64 `json:"p"`
	PStudent     float64 `json:"p_student"`
	PRelabelling float64 `json:"p_relabelling"` // 1 if PStudent exceeds alpha already
	// PVariants holds the greater p-value of both tests in each variant.
	PVariants map[string]float64 `json:"p_variants,omitempty"`

	a, b int // in Ranking
	// uncompared: a variant has too few blocks of the pair, so its interval there
	// is not known.
	uncompared bool
}

// Excluded is a competitor that is not judged.
type Excluded struct {
	Name   string   `json:"name"`
	Causes []string `json:"causes"`
}

// Verdict is what may be said about one metric.
type Verdict struct {
	Outcome Outcome `json:"outcome"`
	// Blocks is the number that every pair has, Least the least for a claim.
	Blocks int `json:"blocks"`
	Least  int `json:"least"`
	// Ranking names the judged, the best first; only Pairs say what of it counts.
	Ranking []string `json:"ranking"`
	// Groups are the largest sets in which no two differ, the best first.
	Groups   [][]string `json:"groups,omitempty"`
	Pairs    []Pair     `json:"pairs,omitempty"`
	Excluded []Excluded `json:"excluded,omitempty"`
	Alpha    float64    `json:"alpha"`
	Smallest float64    `json:"smallest"`
}

// Pair finds the comparison of two places in the ranking, the first below the
// second.
func (v Verdict) Pair(a, b int) (Pair, bool) {
	i := slices.IndexFunc(v.Pairs, func(p Pair) bool { return p.a == a && p.b == b })
	if i < 0 {
		return Pair{}, false
	}
	return v.Pairs[i], true
}
