// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	"imbang/internal/lab/stats"
)

// sameByDefinition are schedulers that are one algorithm when all weights are
// equal. They are compared as one: their difference is noise.
var sameByDefinition = [][2]string{{"rr", "wrr"}, {"lc", "wlc"}}

// keptUp is the share of the asked rate that counts as all of it.
const keptUp = 0.99

// judge says what the cells of one rate show.
func (row *Row) judge(equalWeights bool, seed uint64) {
	var competing, ranked, out []Cell
	for _, c := range row.Cells {
		if c.Scheduler == "" { // a yardstick does not compete
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
		row.say("Nothing is ranked: fewer than two schedulers have clean runs.")
		return
	}
	groups := grouped(competing, equalWeights)
	if bounded(row.Rate, ranked) {
		row.compare(metric("throughput"), groups, seed)
	} else {
		row.say("Throughput ranks nothing: every ranked cell carried all that was asked.")
	}
	row.compare(metric("response_time"), groups, seed)
	if equalWeights {
		row.noise(ranked)
	}
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
		parts = append(parts, c.Column+c.Marks.String())
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

// grouped puts together the schedulers that are the same by definition. One that
// is not ranked does not take the other along.
func grouped(cells []Cell, equalWeights bool) [][]Cell {
	var groups [][]Cell
	at := map[string]int{}
	for _, c := range cells {
		name := c.Scheduler
		if equalWeights && c.Ranked() {
			name = family(name)
		}
		if !c.Ranked() {
			name += " not ranked"
		}
		i, ok := at[name]
		if !ok {
			i = len(groups)
			at[name], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], c)
	}
	return groups
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
	return stats.Series{Name: c.Scheduler, Values: c.blocks[key], Out: c.causes()}
}

func family(scheduler string) string {
	for _, pair := range sameByDefinition {
		if scheduler == pair[1] {
			return pair[0]
		}
	}
	return scheduler
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

// noise compares what is the same by definition.
func (row *Row) noise(ranked []Cell) {
	var parts []string
	for _, pair := range sameByDefinition {
		a, b := find(ranked, pair[0]), find(ranked, pair[1])
		if a == nil || b == nil {
			continue
		}
		n := Noise{A: pair[0], B: pair[1]}
		n.Difference, n.Interval = stats.Difference(a.series("response_time"), b.series("response_time"), level)
		row.Noise = append(row.Noise, n)
		parts = append(parts, fmt.Sprintf("%s and %s %s (%s)", n.A, n.B, stats.Percent(n.Difference), n.Interval))
	}
	if len(parts) > 0 {
		row.say("Noise: with equal weights wrr is rr and wlc is lc by definition, yet their response times differ: %s.",
			strings.Join(parts, ", "))
	}
}

func find(cells []Cell, scheduler string) *Cell {
	for i := range cells {
		if cells[i].Scheduler == scheduler {
			return &cells[i]
		}
	}
	return nil
}
