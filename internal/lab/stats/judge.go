// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Judge answers the question.
func Judge(series []Series, q Question) Verdict {
	v := Verdict{Alpha: q.Alpha, Smallest: q.Smallest}
	in := v.admit(series)
	k := len(in)
	v.Least = leastFor(k, q.Alpha)
	y := logs(in)
	order := ranking(y, k, q.LessIsBetter)
	for _, column := range order {
		v.Ranking = append(v.Ranking, in[column].Name)
	}
	if k < 2 {
		v.Outcome = NotMeasurable
		return v
	}
	list := contrasts(y, nil)
	if v.Blocks = blocksOf(list); v.Blocks < v.Least {
		v.Outcome = TooFewBlocks
		return v
	}
	all := test(y, list, q)
	punctual := all
	if v.Late = lateIn(in); v.Late > 0 {
		z := logs(onTime(in))
		punctual = test(z, contrasts(z, nil), q)
	}
	v.comparePairs(y, order, all, punctual, q)
	v.Groups = named(cliques(k, v.together()), v.Ranking)
	v.Outcome = v.outcome()
	return v
}

// admit leaves out what cannot be judged, and says why. The others are in the
// order of their names, on which alone the arrangements of a test may depend.
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
	in = v.admitLong(in)
	slices.SortStableFunc(in, func(a, b Series) int { return strings.Compare(a.Name, b.Name) })
	return in
}

// admitLong leaves out competitors that were measured in too few blocks, so that
// those that were measured in enough are judged.
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

// blocksOf is the number of blocks that every pair has at least.
func blocksOf(list []contrast) int {
	return slices.MinFunc(list, func(a, b contrast) int { return cmp.Compare(a.n, b.n) }).n
}

// comparePairs puts the results of the tests together, with all runs and
// without the late ones. order lists columns, the best first.
func (v *Verdict) comparePairs(y [][]float64, order []int, all, punctual tested, q Question) {
	var ranks []float64
	for i, first := range order {
		for j, second := range order[i+1:] {
			a, t := all.pair(first, second), all.pair(first, second)
			p := Pair{A: v.Ranking[i], B: v.Ranking[i+1+j], a: i, b: i + 1 + j, Blocks: t.n,
				PStudent: t.student, PRelabelling: t.relabelling, P: t.p()}
			low, high := t.low, t.high
			if v.Late > 0 {
				a = punctual.pair(first, second)
				p.P, p.POnTime = max(p.P, a.p()), new(a.p())
				if t.mean*a.mean < 0 { // they contradict each other
					p.P = 1
				}
				low, high = min(low, a.low), max(high, a.high)
			}
			if p.P > q.Alpha { // one of the tests does not exclude 0, so neither does the interval
				low, high = min(low, 0), max(high, 0)
			}
			p.Joint = shares(Interval{low, high, 1 - q.Alpha})
			if len(ranks) != t.n*(t.n+1)/2+1 {
				ranks = signedRank(t.n)
			}
			estimate, own := hodgesLehmann(walsh(differences(y, first, second)), ranks, t.n, 1-q.Alpha)
			p.Difference, p.Own = math.Expm1(estimate), shares(own)
			p.Finding = p.finding(q)
			v.Pairs = append(v.Pairs, p)
		}
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
	return Different
}

func (v Verdict) outcome() Outcome {
	switch {
	case !slices.ContainsFunc(v.Pairs, func(p Pair) bool { return p.a == 0 && p.Finding != Different }):
		return Winner
	case !slices.ContainsFunc(v.Pairs, func(p Pair) bool { return p.Finding != Equal }):
		return AllEqual
	}
	return Groups
}
