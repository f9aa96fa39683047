// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	"imbang/internal/lab/record"
	"imbang/internal/lab/stats"
	"imbang/internal/lab/study"
)

// sameByDefinition are schedulers that are one algorithm when all weights are
// equal. They are compared as one: their difference is noise.
var sameByDefinition = [][2]string{{"rr", "wrr"}, {"lc", "wlc"}}

// linux are the engines whose schedulers sameByDefinition speaks of.
var linux = []string{"imbang", "ipvs"}

// keptUp is the share of the asked rate that counts as all of it.
const keptUp = 0.99

// judge says what the cells of one level show.
func (row *Row) judge(s *study.Study, seed uint64) {
	var competing, ranked, out []Cell
	for _, c := range row.Cells {
		if c.yardstick {
			continue
		}
		competing = append(competing, c)
		if c.Ranked() {
			ranked = append(ranked, c)
		} else {
			out = append(out, c)
		}
	}
	if len(competing) < 2 {
		return
	}
	if len(out) > 0 {
		row.say("Not ranked: %s.", notRanked(out))
	}
	if len(ranked) < 2 {
		row.say("Nothing is ranked: fewer than two competitors have clean runs.")
		return
	}
	groups := grouped(competing, s)
	switch {
	case row.Closed():
		row.compare(metric("reply_rate"), groups, seed)
	case bounded(row.Rate, ranked):
		row.compare(metric("throughput"), groups, seed)
	default:
		row.say("Throughput ranks nothing: every ranked cell carried all that was asked.")
	}
	row.compare(metric("response_time"), groups, seed)
	row.noise(ranked, s)
}

func (row *Row) say(format string, args ...any) {
	row.Verdicts = append(row.Verdicts, fmt.Sprintf(format, args...))
}

// compare lets the statistics judge one metric and keeps their numbers.
func (row *Row) compare(m Metric, groups [][]Cell, seed uint64) {
	var series []stats.Series
	medians := map[string]Value{}
	for _, g := range groups {
		s := joined(g, m.Key)
		series, medians[s.Name] = append(series, s), value(stats.Present(s.Values))
	}
	row.series = append(row.series, series)
	v := stats.Judge(series, stats.NewQuestion(m.Lowest, seed))
	var unsaid []string
	for _, x := range v.Excluded {
		if i := slices.IndexFunc(series, func(s stats.Series) bool { return s.Name == x.Name }); len(series[i].Out) == 0 {
			unsaid = append(unsaid, fmt.Sprintf("%s (%s)", x.Name, strings.Join(x.Causes, ", ")))
		}
	}
	if row.Comparisons == nil {
		row.Comparisons = map[string]stats.Verdict{}
	}
	row.Comparisons[m.Key] = v
	row.say("%s", sentence(m, v, medians))
	if len(unsaid) > 0 {
		row.say("Not compared: %s.", strings.Join(unsaid, "; "))
	}
}

// notRanked names cells with the marks that keep them out.
func notRanked(cells []Cell) string {
	var parts []string
	for _, c := range cells {
		parts = append(parts, c.Name+c.Marks.String())
	}
	return strings.Join(parts, ", ")
}

// causes says why a cell is not ranked; nil if it is.
func (c Cell) causes() []string {
	if c.Runs == 0 {
		return []string{"no run was measured"}
	}
	var out []string
	for _, x := range []struct {
		n   int
		why string
	}{
		{c.Marks.Behind, "the generator fell short"}, {c.Marks.Lossy, "requests were lost"},
		{c.Marks.Not200, "replies other than 200"},
	} {
		if x.n > 0 {
			out = append(out, fmt.Sprintf("%s in %d of %d runs", x.why, x.n, c.Runs))
		}
	}
	return out
}

// grouped puts together the competitors that are the same by definition. One
// that is not ranked does not take the other along.
func grouped(cells []Cell, s *study.Study) [][]Cell {
	var groups [][]Cell
	at := map[record.Competitor]int{}
	for _, c := range cells {
		key := c.Competitor
		if c.Ranked() {
			key = algorithm(key, s)
		}
		i, ok := at[key]
		if !ok {
			i = len(groups)
			at[key], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], c)
	}
	return groups
}

// algorithm is the same for competitors that differ in the name of their
// scheduler only. One with a name of its own stays itself.
func algorithm(c record.Competitor, s *study.Study) record.Competitor {
	if c.Name != c.Scheduler || !slices.Contains(linux, c.Engine) || !s.WeightsOf(c.Weights).Equal() {
		return c
	}
	for _, pair := range sameByDefinition {
		if c.Scheduler == pair[1] {
			c.Scheduler = pair[0]
		}
	}
	c.Name = ""
	return c
}

// joined is one competitor's series.
func joined(cells []Cell, key string) stats.Series {
	var all []stats.Series
	for _, c := range cells {
		all = append(all, c.series(key))
	}
	return stats.Join(all)
}

func (c Cell) series(key string) stats.Series {
	return stats.Series{Name: c.Name, Values: c.blocks[key], Out: c.causes()}
}

// bounded reports whether the cluster bounded what it carried. In an open loop
// one that keeps up carries what is asked, no more: that ranks nothing.
func bounded(rate float64, ranked []Cell) bool {
	for _, c := range ranked {
		if c.Values["reply_rate"].Min < keptUp*rate {
			return true
		}
	}
	return false
}

// noise compares what is the same by definition: schedulers that equal weights
// make one, and a competitor that stands in the study twice.
func (row *Row) noise(ranked []Cell, s *study.Study) {
	var parts []string
	for i, b := range ranked {
		for _, a := range ranked[:i] {
			if !same(a.Competitor, b.Competitor, s) {
				continue
			}
			n := Noise{A: a.Name, B: b.Name}
			n.Difference, n.Interval = stats.Difference(a.series("response_time"), b.series("response_time"), level)
			row.Noise = append(row.Noise, n)
			parts = append(parts, fmt.Sprintf("%s and %s %s (%s)", n.A, n.B, stats.Percent(n.Difference), n.Interval))
		}
	}
	if len(parts) > 0 {
		row.say("Noise: these are one algorithm here by definition, yet their response times differ: %s.", strings.Join(parts, ", "))
	}
}

func same(a, b record.Competitor, s *study.Study) bool {
	x, y := algorithm(a, s), algorithm(b, s)
	x.Name, y.Name = "", ""
	return x == y
}
