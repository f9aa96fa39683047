// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Judge answers the question. A claim has to hold in the variants too, where
// those are given.
func Judge(series []Series, q Question, variants ...Variant) Verdict {
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
	v.comparePairs(y, order, test(y, list, q), q)
	for _, x := range variants {
		v.hold(x, q)
	}
	v.round(in)
	for i := range v.Pairs {
		p := &v.Pairs[i]
		if p.P > q.Alpha { // one of the tests does not exclude 0, so neither does the interval
			p.Joint.Low, p.Joint.High = min(p.Joint.Low, 0), max(p.Joint.High, 0)
		}
		p.Finding = p.finding(q)
	}
	v.Groups = v.GroupsAt(q.Alpha)
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

// comparePairs lists the pairs with what the tests say of them. order lists
// columns, the best first.
func (v *Verdict) comparePairs(y [][]float64, order []int, list tested, q Question) {
	var ranks []float64
	for i, first := range order {
		for j := i + 1; j < len(order); j++ {
			t := list.pair(first, order[j])
			p := Pair{A: v.Ranking[i], B: v.Ranking[j], a: i, b: j, Blocks: t.n,
				PStudent: t.student, PRelabelling: t.relabelling, P: t.p(), Joint: shares(Interval{t.low, t.high, 1 - q.Alpha})}
			if len(ranks) != t.n*(t.n+1)/2+1 {
				ranks = signedRank(t.n)
			}
			estimate, own := hodgesLehmann(walsh(differences(y, first, order[j])), ranks, t.n, 1-q.Alpha)
			p.Difference, p.Own = math.Expm1(estimate), shares(own)
			v.Pairs = append(v.Pairs, p)
		}
	}
}

// hold lets a variant object to claims. What it cannot compare, it does not
// allow to be claimed: neither that a pair differs nor that it is equal.
func (v *Verdict) hold(x Variant, q Question) {
	var unused Verdict
	in := unused.admit(x.Series)
	var list tested
	column := map[string]int{}
	if len(in) > 1 {
		y := logs(in)
		list = test(y, contrasts(y, nil), q)
		for i, s := range in {
			column[s.Name] = i
		}
	}
	for i := range v.Pairs {
		p := &v.Pairs[i]
		a, first := column[p.A]
		b, second := column[p.B]
		own, compared := 1.0, false
		if first && second {
			t := list.pair(a, b)
			if compared = t.n >= leastBlocks; compared {
				joint := shares(Interval{t.low, t.high, 1 - q.Alpha})
				p.Joint.Low, p.Joint.High = min(p.Joint.Low, joint.Low), max(p.Joint.High, joint.High)
			}
			if own = t.p(); t.mean*p.Difference < 0 { // they contradict each other
				own = 1
			}
		}
		p.uncompared = p.uncompared || !compared
		if p.PVariants == nil {
			p.PVariants = map[string]float64{}
		}
		p.PVariants[x.Name], p.P = own, max(p.P, own)
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
	case p.Joint.within(q.Smallest) && !p.uncompared:
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
