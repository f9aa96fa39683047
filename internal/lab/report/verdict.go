// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
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

// keptUp is the share of the offered rate that counts as all of it.
const keptUp = 0.99

// carriedShare are the blocks with the share of the offered rate that was
// answered within the window. The offered rate is that of the schedule: random
// arrivals of a run are by percents more or fewer than the rate that is asked
// for, for all competitors alike.
const carriedShare = "carried_share"

func carriedOf(s record.Sample) float64 {
	return s.Load.ReplyRate / cmp.Or(s.Load.OfferedRate, s.Rate)
}

// A metric's claims err in one study of sixty, so that those about all of a
// level, and there are at most three metrics, do in one of twenty.
const (
	mostQuestions = 3
	claimAlpha    = (1 - level) / mostQuestions
)

// leastForTail is the number of response times from which on a 99th percentile
// is judged: ten lie beyond it.
const leastForTail = 1000

// tail is the metric that is judged but not waited for.
const tail = "response_time_p99"

// Outcome is the verdict on a level, or on the study, in a word.
type Outcome string

// The outcomes.
const (
	OutcomeWinner        Outcome = "winner"         // one is better than every other
	OutcomeGroups        Outcome = "groups"         // some differ, the first not from all others
	OutcomeEqual         Outcome = "equal"          // the joint intervals exclude differences of interest
	OutcomeNoDifference  Outcome = "no difference"  // no two differ significantly
	OutcomeTooFewRuns    Outcome = "too few runs"   // nothing could be claimed
	OutcomeNotMeasurable Outcome = "not measurable" // for the causes given
	OutcomeNothing       Outcome = "nothing to compare"
)

// judge says what the cells of one level show.
func (row *Row) judge(s *study.Study, plan record.Plan) {
	var competing, carrying, ranked []Cell
	for _, c := range row.Cells {
		if c.yardstick {
			continue
		}
		competing = append(competing, c)
		if c.carries() {
			carrying = append(carrying, c)
		}
		if c.Ranked() {
			ranked = append(ranked, c)
		} else {
			row.Causes = gather(row.Causes, c.Causes, "")
		}
	}
	row.Outcome = OutcomeNothing
	if len(competing) < 2 {
		return
	}
	row.sayCauses()
	row.Outcome = OutcomeNotMeasurable
	groups := grouped(competing, s)
	row.alike(groups, s)
	if len(carrying) < 2 {
		row.say("Nothing is ranked: fewer than two competitors have clean runs.")
		return
	}
	for _, m := range row.questions(carrying, ranked) {
		row.compare(m, groups)
	}
	row.conclude(s)
	row.noise(ranked, s)
	row.control(ranked, s)
	row.suspects(s)
	row.saySuspicion()
}

// questions are the metrics that are judged. Which they are follows from the
// plan and from what was carried, not from who was better.
func (row *Row) questions(carrying, ranked []Cell) (list []Metric) {
	switch {
	case row.Tool == study.Ping:
		// Its rate is that of the lab's pause between two echo requests.
	case row.Closed() || bounded(carrying):
		// Not by bytes: a proxy that adds a header to each reply carries more of
		// them, and no more requests.
		list = append(list, metric("reply_rate"))
	default:
		row.because(NeverShort, names(ranked), "the cluster was never short of anything, every ranked cell carried all that was asked")
		row.say("Throughput ranks nothing: every ranked cell carried all that was asked.")
	}
	if len(ranked) < 2 {
		return list
	}
	list = append(list, metric("response_time"))
	if !slices.ContainsFunc(ranked, func(c Cell) bool { return c.fewest < leastForTail }) {
		list = append(list, metric(tail))
	}
	return slices.DeleteFunc(list, func(m Metric) bool {
		return row.delayed(m.Key) || !slices.ContainsFunc(carrying, func(c Cell) bool { return c.Values[m.Key].N > 0 })
	})
}

func names(cells []Cell) (list []string) {
	for _, c := range cells {
		list = append(list, c.Name)
	}
	return list
}

// alike adds what equal weights make one to the causes.
func (row *Row) alike(groups [][]Cell, s *study.Study) {
	for _, g := range groups {
		if len(g) < 2 {
			continue
		}
		row.because(EqualWeights, names(g), "%s are one algorithm by definition and are judged as one", list(names(g)))
	}
}

func (row *Row) because(k Kind, cells []string, format string, args ...any) {
	row.Causes = gather(row.Causes, []Cause{{Kind: k, Text: fmt.Sprintf(format, args...), Cells: cells}}, "")
}

// sayCauses says who is not ranked, and why.
func (row *Row) sayCauses() {
	for _, c := range row.Causes {
		if c.Kind == RequestsLost {
			row.say("Response times, which leave out what was lost, are not ranked: %s.", c.sentence())
			continue
		}
		row.say("Not measurable here: %s.", c.sentence())
	}
}

// saySuspicion says where the control differs from itself.
func (row *Row) saySuspicion() {
	for _, c := range row.Causes {
		if c.Kind == ControlDiffers {
			row.say("%s: %s.", capital(c.Kind.words()), c.Text)
		}
	}
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func (row *Row) say(format string, args ...any) {
	row.Verdicts = append(row.Verdicts, fmt.Sprintf(format, args...))
}

// compare lets the statistics judge one metric and keeps their numbers.
func (row *Row) compare(m Metric, groups [][]Cell) {
	series := seriesOf(groups, m.Key, Cell.series)
	medians := map[string]Value{}
	for _, s := range series {
		medians[s.Name] = value(stats.Present(s.Values))
	}
	if m.Key != tail { // its intervals stay wide for long; a study does not wait for them
		row.series = append(row.series, series)
	}
	q := stats.NewQuestion(m.Lowest)
	q.Alpha = claimAlpha
	v := stats.Judge(series, q, variantsOf(groups, m.Key)...)
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

// causes says why a cell is not ranked; nil if it is.
func (c Cell) causes(but ...Kind) (out []string) {
	for _, x := range c.Causes {
		if slices.Contains(but, x.Kind) {
			continue
		}
		out = append(out, fmt.Sprintf("%s (%s)", x.Kind.words(), x.Text))
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
	if ownName(c) || !slices.Contains(linux, c.Engine) || !equal(c, s) {
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

// ownName reports whether a competitor was given its name, which else is made of
// what tells it from others (study.NameAll).
func ownName(c record.Competitor) bool {
	made := []string{c.Engine, c.Scheduler, c.Weights, fmt.Sprintf("x%d", c.Servers)}
	return slices.ContainsFunc(strings.Fields(c.Name), func(word string) bool { return !slices.Contains(made, word) })
}

// equal reports whether the weights of those that take part are.
func equal(c record.Competitor, s *study.Study) bool {
	w := s.WeightsOf(c.Weights).Weights
	return study.WeightSet{Weights: w[:min(c.Servers, len(w))]}.Equal()
}

// carried are the metrics that count what was answered: a request that the
// cluster loses is in them, as one less.
var carried = []string{"throughput", "reply_rate"}

// carries reports whether the cell may be compared by those.
func (c Cell) carries() bool { return c.Runs > 0 && len(c.causes(RequestsLost)) == 0 }

func (c Cell) series(key string) stats.Series {
	s := stats.Series{Name: c.Name, Values: c.blocks[key], Out: c.causes(), Rounding: c.roundingOf(key)}
	if slices.Contains(carried, key) {
		s.Out = c.causes(RequestsLost)
	}
	return s
}

// bounded reports whether the cluster bounded what it carried: whether one of the
// competitors carried less than was offered in the median of its runs on time. In an
// open loop one that keeps up carries what is offered, no more: that ranks nothing.
func bounded(ranked []Cell) bool {
	for _, c := range ranked {
		if s := stats.Summarize(stats.Present(c.onTime(carriedShare).Values)); s.N > 0 && s.Median < keptUp {
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
		row.say("Noise: difference in mean response time of competitors that are one algorithm here: %s.", strings.Join(parts, ", "))
	}
}

func same(a, b record.Competitor, s *study.Study) bool {
	x, y := algorithm(a, s), algorithm(b, s)
	x.Name, y.Name = "", ""
	return x == y
}
