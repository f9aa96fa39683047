// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	"imbang/internal/lab/stats"
)

// StudyVerdict is what may be said of all levels together. In at most one study of
// twenty any winner that it names is wrong, however many levels and metrics there
// are; the same holds for the differences that it claims.
type StudyVerdict struct {
	Outcome  Outcome  `json:"outcome"`
	Sentence string   `json:"sentence"`
	Winners  []Winner `json:"winners,omitempty"`
	// Causes say what is not measurable, and where.
	Causes []Cause `json:"causes,omitempty"`

	places    []string // of each cause, in words
	different []answer // questions with groups
}

// Winner is who is best by one metric at one level.
type Winner struct {
	At     string   `json:"at"`
	Metric string   `json:"metric"` // its key
	Names  []string `json:"names"`  // several if one stands in the study under several

	answer answer
}

// verdict makes the study's verdict of those of the levels.
func (rep *Report) verdict() (v StudyVerdict) {
	var all, judged []*Row
	var answers []answer
	for i := range rep.Sections {
		for j := range rep.Sections[i].Rows {
			row := &rep.Sections[i].Rows[j]
			if row.Outcome == OutcomeNothing {
				continue
			}
			all = append(all, row)
			v.Causes = gather(v.Causes, row.Causes, " at "+row.Condition.String())
			if len(row.answered) > 0 {
				judged = append(judged, row)
				for _, a := range row.answered {
					a.row = row
					answers = append(answers, a)
				}
			}
		}
	}
	for _, c := range v.Causes {
		v.places = append(v.places, whereIs(c.Kind, all))
	}
	switch {
	case len(all) == 0:
		v.Outcome, v.Sentence = OutcomeNothing, "Nothing to compare: fewer than two competitors."
	case len(judged) == 0:
		v.unjudged(all)
	default:
		v.judged(all, judged, answers)
	}
	return v
}

// whereIs says for which competitors at which levels there is a cause.
func whereIs(k Kind, rows []*Row) string {
	var who, at []string // by the same competitors
	for _, row := range rows {
		for _, c := range row.Causes {
			if c.Kind != k {
				continue
			}
			names := strings.Join(c.Cells, ", ")
			i := slices.Index(who, names)
			if i < 0 {
				i = len(who)
				who, at = append(who, names), append(at, "")
			}
			at[i] += " and " + row.Condition.String()
		}
	}
	for i := range who {
		who[i] += " at " + strings.TrimPrefix(at[i], " and ")
		if n := strings.Count(at[i], " and "); n == len(rows) && n > 1 {
			who[i], _, _ = strings.Cut(who[i], " at ")
			who[i] += " everywhere"
		}
	}
	return strings.Join(who, "; ")
}

// unjudged is the verdict when no level has one.
func (v *StudyVerdict) unjudged(all []*Row) {
	v.Outcome, v.Sentence = OutcomeNotMeasurable, fmt.Sprintf("Not measurable here%s: %s.", anywhere(all), kindsOf(all))
	if slices.ContainsFunc(all, func(r *Row) bool { return r.Outcome == OutcomeTooFewRuns }) {
		v.Outcome, v.Sentence = OutcomeTooFewRuns, fmt.Sprintf("No verdict%s: %s.", anywhere(all), kindsOf(all))
		for _, c := range v.Causes {
			if c.Kind == TooFewRuns {
				v.Sentence = fmt.Sprintf("No verdict%s: %s.", anywhere(all), c.Text)
			}
		}
	}
}

// judged is the verdict when some levels have one.
func (v *StudyVerdict) judged(all, judged []*Row, answers []answer) {
	var winner, any []float64
	for _, a := range answers {
		winner, any = append(winner, a.winner), append(any, a.differs)
	}
	won, differ := stats.Hochberg(winner, 1-level), stats.Hochberg(any, 1-level)
	var different []answer
	for i, a := range answers {
		if won[i] && a.best != nil {
			v.Winners = append(v.Winners, Winner{a.at, a.metric.Key, a.best, a})
		}
		if !differ[i] || a.differs > a.verdict.Alpha {
			continue
		}
		if a.groups = a.groupsAmong(len(answers)); len(a.groups) > 1 {
			different = append(different, a)
		} else {
			differ[i] = won[i]
		}
	}
	v.different = different
	equal := !slices.ContainsFunc(judged, func(r *Row) bool { return r.Outcome != OutcomeEqual })
	switch {
	case len(v.Winners) > 0:
		v.Outcome, v.Sentence = OutcomeWinner, v.winners(judged)
	case len(different) > 0:
		v.Outcome = OutcomeGroups
		v.Sentence = fmt.Sprintf("No winner%s; groups without a significant difference: %s", anywhere(judged), divided(different))
	case equal:
		v.Outcome = OutcomeEqual
		v.Sentence = fmt.Sprintf("Equal: the joint intervals exclude a difference above %s%s", share(answers[0].verdict.Smallest), everywhere(judged))
	default:
		v.Outcome = OutcomeNoDifference
		v.Sentence = fmt.Sprintf("No significant difference between any two %ss%s; %s", noun(all), anywhere(judged), hulls(answers))
	}
	if rows := beyond(answers, differ); len(rows) > 0 {
		v.Sentence += fmt.Sprintf("; differences%s are not significant among %d questions", places(rows), len(answers))
	}
	if rest := except(all, judged); len(rest) > 0 {
		v.Sentence += fmt.Sprintf("; not measurable here%s: %s", places(rest), kindsOf(rest))
	}
	v.Sentence += "."
}

// groupsAmong are the groups of a question among several. Hochberg's procedure
// only says that the question has a difference somewhere. Its other pairs may
// be equal, and were there a difference in every question, each would err by
// itself: so every pair has to be significant at a question's part of the
// study's error rate. Where there is one pair, it is the question.
func (a answer) groupsAmong(questions int) [][]string {
	if len(a.verdict.Pairs) == 1 {
		return a.verdict.Groups
	}
	return a.verdict.GroupsAt(min(a.verdict.Alpha, (1-level)/float64(questions)))
}

// winners says which competitor is best at which level, and where none is.
func (v *StudyVerdict) winners(judged []*Row) string {
	var parts []string
	var done []*Row
	for i, w := range v.Winners {
		if slices.ContainsFunc(v.Winners[:i], func(x Winner) bool { return alsoSaid(x, w) }) {
			continue
		}
		var rows []*Row
		for _, x := range v.Winners[i:] {
			if alsoSaid(w, x) && !slices.Contains(rows, x.answer.row) {
				rows = append(rows, x.answer.row)
			}
		}
		done = append(done, rows...)
		is, in, such := "is", "", ""
		if len(w.Names) > 1 {
			is = "are"
		}
		if w.answer.row.Outcome != OutcomeWinner { // another is in another metric
			in = " in " + w.answer.metric.Name
		}
		if len(rows) > 1 {
			such = "at " + w.At + ": "
		}
		parts = append(parts, fmt.Sprintf("%s %s best%s%s (%s%s)", list(w.Names), is, in, places(rows), such, w.answer.advantage()))
	}
	if rest := except(judged, done); len(rest) > 0 {
		parts = append(parts, "no winner"+places(rest))
	}
	return strings.Join(parts, "; ")
}

// hulls says for each metric within what bounds the joint intervals lie.
func hulls(answers []answer) string {
	var parts []string
	for _, m := range metrics {
		low, high, asked := 0.0, 0.0, false
		for _, a := range answers {
			if a.metric.Key != m.Key {
				continue
			}
			asked = true
			for _, p := range a.verdict.Pairs {
				low, high = min(low, p.Joint.Low), max(high, p.Joint.High)
			}
		}
		if asked {
			parts = append(parts, fmt.Sprintf("%s from %s to %s", m.Name, stats.Percent(low), stats.Percent(high)))
		}
	}
	return "the joint intervals allow differences in " + list(parts)
}

// alsoSaid reports whether one clause names two winners.
func alsoSaid(a, b Winner) bool {
	whole := a.answer.row.Outcome == OutcomeWinner
	return slices.Equal(a.Names, b.Names) && whole == (b.answer.row.Outcome == OutcomeWinner) && (whole || a.Metric == b.Metric)
}

// divided lists the groups without a significant difference, for some questions.
func divided(different []answer) string {
	const most = 3
	var parts []string
	for _, a := range different[:min(most, len(different))] {
		var groups []string
		for _, g := range a.groups {
			groups = append(groups, strings.Join(g, " "))
		}
		parts = append(parts, fmt.Sprintf("%s at %s in %s", strings.Join(groups, " | "), a.at, a.metric.Name))
	}
	if n := len(different) - most; n > 0 {
		parts = append(parts, fmt.Sprintf("and so on for %d more, below", n))
	}
	return strings.Join(parts, "; ")
}

// beyond lists levels with a difference that is significant for the level alone,
// but not for the study.
func beyond(answers []answer, differ []bool) (rows []*Row) {
	for i, a := range answers {
		if !differ[i] && a.differs <= a.verdict.Alpha && !slices.Contains(rows, a.row) {
			rows = append(rows, a.row)
		}
	}
	return rows
}

func except(all, these []*Row) []*Row {
	return slices.DeleteFunc(slices.Clone(all), func(r *Row) bool { return slices.Contains(these, r) })
}

// kindsOf names the causes of rows that have no verdict.
func kindsOf(rows []*Row) string {
	var words []string
	for _, x := range kinds {
		for _, row := range rows {
			if slices.ContainsFunc(row.Causes, func(c Cause) bool { return c.Kind == x.Kind }) {
				words = append(words, x.words)
				break
			}
		}
	}
	if len(words) == 0 {
		return "nothing was measured of two competitors"
	}
	return strings.Join(words, ", ")
}

// places lists levels.
func places(rows []*Row) string {
	const most = 4
	var words []string
	for _, row := range rows {
		words = append(words, row.Condition.String())
	}
	if len(words) > most {
		return fmt.Sprintf(" at %d %s", len(rows), levels(rows))
	}
	return " at " + list(words)
}

func anywhere(rows []*Row) string {
	if len(rows) == 1 {
		return places(rows)
	}
	return fmt.Sprintf(" at any of %d %s", len(rows), levels(rows))
}

func everywhere(rows []*Row) string {
	if len(rows) == 1 {
		return places(rows)
	}
	return fmt.Sprintf(" at each of %d %s", len(rows), levels(rows))
}

// levels is what the rows are, in the plural.
func levels(rows []*Row) string {
	if slices.ContainsFunc(rows, func(r *Row) bool { return r.Closed() || r.Condition.Group() != rows[0].Condition.Group() }) {
		return "conditions"
	}
	return "rates"
}

// noun is what is compared: schedulers, if nothing but those differs.
func noun(rows []*Row) string {
	var first *Cell
	for i := range rows[0].Cells {
		c := &rows[0].Cells[i]
		if c.yardstick {
			continue
		}
		if first == nil {
			first = c
		}
		if c.Engine != first.Engine || c.Servers != first.Servers || c.Scheduler == "" {
			return "competitor"
		}
	}
	return "scheduler"
}
