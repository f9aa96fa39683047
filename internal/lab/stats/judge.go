// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Series is what was measured of one competitor.
type Series struct {
	Name string
	// Values has one figure a block, NaN where there is none.
	Values []float64
	// Out says why the competitor cannot be judged, if so.
	Out []string
}

// Question is what is asked of the series of one metric.
type Question struct {
	LessIsBetter bool
	// Alpha is the probability, at most, that any claim is false.
	Alpha float64
	// Smallest is the smallest difference of interest, as a share.
	Smallest float64
	// Relabellings is how often labels are permuted.
	Relabellings int
	Seed         uint64
}

// NewQuestion is the usual question: claims at 5 %, differences of 2 %.
func NewQuestion(lessIsBetter bool, seed uint64) Question {
	return Question{LessIsBetter: lessIsBetter, Alpha: 0.05, Smallest: 0.02, Relabellings: 1999, Seed: seed}
}

// Outcome is the verdict in one word.
type Outcome string

// The outcomes.
const (
	Winner        Outcome = "winner"         // one is better than every other
	Groups        Outcome = "groups"         // some cannot be told from the best
	AllEqual      Outcome = "equal"          // all differ by less than is of interest
	TooFewBlocks  Outcome = "too few blocks" // nothing could be claimed
	NotMeasurable Outcome = "not measurable" // fewer than two can be judged
)

// Finding is what is known of a pair.
type Finding string

// The findings.
const (
	Apart   Finding = "apart"       // they differ, by what is of interest
	Slight  Finding = "slight"      // they differ, it seems by less than that
	Equal   Finding = "equal"       // they differ by less than that for certain
	Unclear Finding = "cannot tell" // the interval is too wide for any of these
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
	// P is the greater one of both referees' p-values, all pairs counted in.
	P            float64 `json:"p"`
	PStudent     float64 `json:"p_student"`
	PRelabelling float64 `json:"p_relabelling"` // 1 if PStudent leaves nothing to ask

	a, b int // in Ranking
}

// Excluded is a competitor that is not judged.
type Excluded struct {
	Name   string   `json:"name"`
	Causes []string `json:"causes"`
}

// Verdict is what may be said about one metric.
type Verdict struct {
	Outcome Outcome `json:"outcome"`
	// Blocks is the number that every pair has, Needed the least for a claim.
	Blocks int `json:"blocks"`
	Needed int `json:"needed"`
	// Ranking names the judged, the best first; only Pairs say what of it counts.
	Ranking []string `json:"ranking"`
	// Groups are the largest sets of which no two are apart, the best first.
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

// Judge answers the question.
func Judge(series []Series, q Question) Verdict {
	v := Verdict{Alpha: q.Alpha, Smallest: q.Smallest}
	in := v.admit(series)
	y := logs(in)
	k := len(in)
	v.Needed = Needed(k, q.Alpha)
	order := ranking(y, k, q.LessIsBetter)
	in, y = reorder(in, order), reorderColumns(y, order)
	for _, s := range in {
		v.Ranking = append(v.Ranking, s.Name)
	}
	if k < 2 {
		v.Outcome = NotMeasurable
		return v
	}
	list := contrasts(y, nil)
	v.Blocks = slices.MinFunc(list, func(a, b contrast) int { return cmp.Compare(a.n, b.n) }).n
	if v.Blocks < v.Needed {
		v.Outcome = TooFewBlocks
		return v
	}
	v.comparePairs(y, list, q)
	v.Groups = named(cliques(k, v.together()), v.Ranking)
	v.Outcome = v.outcome()
	return v
}

// admit leaves out what cannot be judged, and says why.
func (v *Verdict) admit(series []Series) (in []Series) {
	for _, s := range series {
		causes := slices.Clone(s.Out)
		present := Present(s.Values)
		if len(present) == 0 && len(causes) == 0 {
			causes = append(causes, "never measured")
		}
		if slices.ContainsFunc(present, func(x float64) bool { return x <= 0 || math.IsInf(x, 0) }) {
			causes = append(causes, "a figure of 0 has no ratio to others")
		}
		if len(causes) > 0 {
			v.Excluded = append(v.Excluded, Excluded{s.Name, causes})
			continue
		}
		in = append(in, s)
	}
	return v.admitLong(in)
}

// admitLong leaves out who was measured in too few blocks, so that it does not
// take the verdict from those that were measured in enough.
func (v *Verdict) admitLong(series []Series) (in []Series) {
	most := 0
	for _, s := range series {
		most = max(most, len(Present(s.Values)))
	}
	for _, s := range series {
		n := len(Present(s.Values))
		if n < leastBlocks && most >= leastBlocks {
			v.Excluded = append(v.Excluded, Excluded{s.Name, []string{fmt.Sprintf("measured in %d blocks, at least %d are needed", n, leastBlocks)}})
			continue
		}
		in = append(in, s)
	}
	return in
}

// logs turns series into a table of logarithms, a row a block.
func logs(series []Series) [][]float64 {
	blocks := 1
	for _, s := range series {
		blocks = max(blocks, len(s.Values))
	}
	y := make([][]float64, blocks)
	for b := range y {
		y[b] = make([]float64, len(series))
		for i, s := range series {
			y[b][i] = math.NaN()
			if b < len(s.Values) {
				y[b][i] = math.Log(s.Values[b])
			}
		}
	}
	return y
}

// ranking orders the columns by their mean distance from the others in the same
// blocks.
func ranking(y [][]float64, k int, lessIsBetter bool) []int {
	score := make([]float64, k)
	order := make([]int, k)
	for a := range k {
		order[a] = a
		for b := a + 1; b < k; b++ {
			if d := differences(y, a, b); len(d) > 0 {
				m := middle(walsh(d))
				score[a], score[b] = score[a]-m, score[b]+m
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if lessIsBetter {
			return cmp.Compare(score[a], score[b])
		}
		return cmp.Compare(score[b], score[a])
	})
	return order
}

func reorder(in []Series, order []int) []Series {
	out := make([]Series, len(in))
	for i, j := range order {
		out[i] = in[j]
	}
	return out
}

func reorderColumns(y [][]float64, order []int) [][]float64 {
	out := make([][]float64, len(y))
	for b, row := range y {
		for _, j := range order {
			out[b] = append(out[b], row[j])
		}
	}
	return out
}

// differences lists b - a of the blocks that hold both.
func differences(y [][]float64, a, b int) []float64 {
	d := make([]float64, 0, len(y))
	for _, row := range y {
		if x := row[b] - row[a]; !math.IsNaN(x) {
			d = append(d, x)
		}
	}
	return d
}

// comparePairs lets both referees judge every pair.
func (v *Verdict) comparePairs(y [][]float64, list []contrast, q Question) {
	m := float64(len(list))
	student := make([]float64, len(list))
	asked := make([]bool, len(list))
	for i, c := range list {
		student[i] = min(1, m*studentTails(c.t, c.df))
		asked[i] = student[i] <= q.Alpha
	}
	relabelled := make([]float64, len(list))
	if slices.Contains(asked, true) {
		relabelled = byRelabelling(y, list, asked, q.Relabellings, q.Seed)
	}
	point := studentPoints(q.Alpha / m)
	var ranks []float64
	for i, c := range list {
		p := Pair{A: v.Ranking[c.a], B: v.Ranking[c.b], a: c.a, b: c.b, Blocks: c.n, PStudent: student[i], PRelabelling: 1}
		if asked[i] {
			p.PRelabelling = relabelled[i]
		}
		p.P = max(p.PStudent, p.PRelabelling)
		if len(ranks) != c.n*(c.n+1)/2+1 {
			ranks = signedRank(c.n)
		}
		middle, own := hodgesLehmann(walsh(differences(y, c.a, c.b)), ranks, c.n, 1-q.Alpha)
		p.Difference, p.Own = math.Expm1(middle), shares(own)
		half := point(c.df) * c.standardError()
		p.Joint = shares(Interval{c.mean - half, c.mean + half, 1 - q.Alpha})
		if p.P > q.Alpha { // one referee does not exclude 0, so neither does the interval
			p.Joint.Low, p.Joint.High = min(p.Joint.Low, 0), max(p.Joint.High, 0)
		}
		p.Finding = p.finding(q)
		v.Pairs = append(v.Pairs, p)
	}
}

// shares turns differences of logarithms into shares.
func shares(i Interval) Interval {
	// JSON has no infinity, and beyond this no number is of use.
	const end = 50
	return Interval{math.Expm1(max(i.Low, -end)), math.Expm1(min(i.High, end)), i.Level}
}

func (p Pair) finding(q Question) Finding {
	switch {
	case p.Joint.within(q.Smallest):
		return Equal
	case p.P > q.Alpha:
		return Unclear
	case math.Abs(p.Difference) < q.Smallest:
		return Slight
	}
	return Apart
}

func (v Verdict) outcome() Outcome {
	switch {
	case !slices.ContainsFunc(v.Pairs, func(p Pair) bool { return p.a == 0 && p.Finding != Apart }):
		return Winner
	case !slices.ContainsFunc(v.Pairs, func(p Pair) bool { return p.Finding != Equal }):
		return AllEqual
	}
	return Groups
}

// String is for messages.
func (p Pair) String() string { return fmt.Sprintf("%s and %s", p.A, p.B) }
