// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"imbang/internal/lab/record"
	"imbang/internal/lab/stats"
	"imbang/internal/lab/study"
)

// answer is one question's part in the study's verdict.
type answer struct {
	row     *Row   // set when the report is whole
	at      string // the condition
	metric  Metric
	verdict stats.Verdict
	best    []string // who is best by itself, under all its names
	// winner is the p-value of the claim that best is; differs that of any
	// difference. Both count all pairs in.
	winner, differs float64
	// groups are those of the study's verdict: only differences count that are
	// significant among all questions.
	groups [][]string
}

// answers lists the questions of the row that were judged.
func (row *Row) answers(s map[string]record.Competitor, twins func(a, b record.Competitor) bool) (list []answer) {
	for _, m := range metrics {
		v, asked := row.Comparisons[m.Key]
		if !asked || len(v.Pairs) == 0 {
			continue
		}
		a := answer{at: row.Condition.String(), metric: m, verdict: v, differs: 1}
		isFirst := func(name string) bool {
			x, known := s[name]
			first, both := s[v.Ranking[0]]
			return name == v.Ranking[0] || known && both && twins(x, first)
		}
		clear := false
		for _, p := range v.Pairs {
			if math.Abs(p.Difference) >= v.Smallest {
				a.differs = min(a.differs, p.P)
			}
			if isFirst(p.A) != isFirst(p.B) {
				a.winner, clear = max(a.winner, p.P), true
				if p.Finding != stats.Different || !isFirst(p.A) {
					a.winner = 1
				}
			}
		}
		if !clear {
			a.winner = 1
		}
		if a.winner <= v.Alpha {
			for _, name := range v.Ranking {
				if isFirst(name) {
					a.best = append(a.best, name)
				}
			}
			slices.Sort(a.best) // metrics rank them in any order
		}
		list = append(list, a)
	}
	return list
}

// conclude puts the verdicts on the metrics into one word. A competitor that
// stands in the study twice is best if both of its cells differ from all others.
func (row *Row) conclude(s *study.Study) {
	byName := map[string]record.Competitor{}
	for _, c := range row.Cells {
		byName[c.Name] = c.Competitor
	}
	row.answered = row.answers(byName, func(a, b record.Competitor) bool { return same(a, b, s) })
	differ, best, equal := false, []string(nil), true
	for _, a := range row.answered {
		differ = differ || slices.ContainsFunc(a.verdict.Pairs, func(p stats.Pair) bool { return p.Finding == stats.Different })
		equal = equal && a.verdict.Outcome == stats.AllEqual
		if a.best == nil {
			continue
		}
		if row.Best == nil {
			row.Best, best = map[string][]string{}, a.best
		}
		row.Best[a.metric.Key] = a.best
		if len(a.best) > 1 {
			row.say("Best: %s, which are the same: %s.", list(a.best), a.advantage())
		}
		if !slices.Equal(best, a.best) {
			best = []string{} // one is best in this, another in that
		}
	}
	switch {
	case len(row.answered) == 0:
		row.few()
	case len(best) > 0:
		row.Outcome = OutcomeWinner
	case differ:
		row.Outcome = OutcomeGroups
	case equal:
		row.Outcome = OutcomeEqual
	default:
		row.Outcome = OutcomeNoDifference
	}
}

// few is the outcome when no question was judged.
func (row *Row) few() {
	for _, m := range metrics {
		if v, asked := row.Comparisons[m.Key]; asked && v.Outcome == stats.TooFewBlocks {
			row.Outcome = OutcomeTooFewRuns
			row.because(TooFewRuns, v.Ranking, "%s", runsNeeded(v))
			return
		}
	}
	row.Outcome = OutcomeNotMeasurable
}

// list joins words as in a sentence.
func list(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
	return strings.Join(words, "")
}

// advantage says in how far the best of a question is better.
func (a answer) advantage() string {
	word := "highest"
	if a.metric.Lowest {
		word = "lowest"
	}
	for _, p := range a.verdict.Pairs {
		if slices.Contains(a.best, p.A) && !slices.Contains(a.best, p.B) {
			return fmt.Sprintf("%s %s; %s, the next, has %s (%s)", word, a.metric.Name, p.B, stats.Percent(p.Difference), p.Joint)
		}
	}
	return word + " " + a.metric.Name
}
