// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

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
