// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"strings"

	"imbang/internal/lab/stats"
)

// sameByDefinition are schedulers that are one algorithm when all weights are
// equal. They are compared as one: their difference is noise.
var sameByDefinition = [][2]string{{"rr", "wrr"}, {"lc", "wlc"}}

// keptUp is the share of the asked rate that counts as all of it.
const keptUp = 0.99

// verdicts says for one rate what its cells show.
func verdicts(row Row, equalWeights bool) []string {
	var ranked, out []Cell
	for _, c := range row.Cells {
		switch {
		case c.Scheduler == "": // a yardstick does not compete
		case c.Ranked():
			ranked = append(ranked, c)
		default:
			out = append(out, c)
		}
	}
	if len(ranked)+len(out) < 2 {
		return nil
	}
	var lines []string
	if len(out) > 0 {
		lines = append(lines, "Not ranked: "+notRanked(out)+".")
	}
	if len(ranked) < 2 {
		return append(lines, "Nothing is ranked: fewer than two schedulers have clean runs.")
	}
	groups := grouped(ranked, equalWeights)
	lines = append(lines, throughputVerdict(row.Rate, ranked, groups), compare(metric("response_time"), groups))
	if equalWeights {
		if line := noise(ranked); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// notRanked names cells with the marks that keep them out.
func notRanked(cells []Cell) string {
	var parts []string
	for _, c := range cells {
		parts = append(parts, c.Column+c.Marks.String())
	}
	return strings.Join(parts, ", ")
}

// group is one competitor: a scheduler, or two that are the same.
type group struct {
	name    string
	samples map[string][]float64
}

// grouped joins the schedulers that are the same by definition.
func grouped(cells []Cell, equalWeights bool) []group {
	var groups []group
	at := map[string]int{}
	for _, c := range cells {
		name := c.Scheduler
		if equalWeights {
			name = family(name)
		}
		i, ok := at[name]
		if !ok {
			i = len(groups)
			at[name] = i
			groups = append(groups, group{samples: map[string][]float64{}})
		}
		if groups[i].name != "" {
			groups[i].name += "="
		}
		groups[i].name += c.Scheduler
		for k, v := range c.samples {
			groups[i].samples[k] = append(groups[i].samples[k], v...)
		}
	}
	return groups
}

func family(scheduler string) string {
	for _, pair := range sameByDefinition {
		if scheduler == pair[1] {
			return pair[0]
		}
	}
	return scheduler
}

// throughputVerdict ranks throughput only where the cluster bounded it. In an
// open loop a cluster that keeps up carries what is asked, no more.
func throughputVerdict(rate float64, ranked []Cell, groups []group) string {
	for _, c := range ranked {
		if c.Values["reply_rate"].Min < keptUp*rate {
			return compare(metric("throughput"), groups)
		}
	}
	return "Throughput ranks nothing: every ranked cell carried all that was asked."
}

// compare is the verdict on one metric.
func compare(m Metric, groups []group) string {
	var in []stats.Group
	for _, g := range groups {
		in = append(in, stats.Group{Name: g.name, Samples: g.samples[m.Key]})
	}
	v, ok := stats.Compare(in, m.Lowest)
	if !ok {
		return m.Title + ": nothing to compare."
	}
	word, side := "highest", "below"
	if m.Lowest {
		word, side = "lowest", "above"
	}
	lead := stats.Summarize(in[v.Leader].Samples)
	who := fmt.Sprintf("%s has the %s %s, %.*f %s (%.*f to %.*f)", in[v.Leader].Name, word, m.Name,
		m.Decimals, lead.Median, m.Unit, m.Decimals, lead.Min, m.Decimals, lead.Max)
	switch {
	case v.Apart():
		return fmt.Sprintf("Best: %s, apart from all others (by luck in %s of comparisons of equals).", who, percent(v.Chance))
	case len(v.Overlapping) == 0:
		return fmt.Sprintf("No best: %s, apart from all others, but so few runs set one apart by luck in %s of comparisons of equals; repeat more often.",
			who, percent(v.Chance))
	}
	same := map[int]bool{v.Leader: true}
	var overlap, apart []string
	for _, i := range v.Overlapping {
		same[i] = true
		overlap = append(overlap, in[i].Name)
	}
	for i, g := range in {
		if !same[i] && len(g.Samples) > 0 {
			apart = append(apart, g.Name)
		}
	}
	line := fmt.Sprintf("No best: %s; its range overlaps %s", who, strings.Join(overlap, ", "))
	if len(apart) > 0 {
		line += fmt.Sprintf("; wholly %s it: %s", side, strings.Join(apart, ", "))
	}
	return line + "."
}

// percent writes a probability so that small ones keep a digit.
func percent(p float64) string {
	switch {
	case p < 0.0001:
		return "under 0.01 %"
	case p < 0.01:
		return fmt.Sprintf("%.2f %%", 100*p)
	}
	return fmt.Sprintf("%.0f %%", 100*p)
}

// noise shows how far two runs of the same algorithm lie apart.
func noise(ranked []Cell) string {
	medians := map[string]float64{}
	for _, c := range ranked {
		medians[c.Scheduler] = c.Values["response_time"].Median
	}
	var parts []string
	for _, pair := range sameByDefinition {
		a, okA := medians[pair[0]]
		b, okB := medians[pair[1]]
		if okA && okB && min(a, b) > 0 {
			parts = append(parts, fmt.Sprintf("%s and %s %.0f %%", pair[0], pair[1], 100*math.Abs(a-b)/min(a, b)))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "Noise: with equal weights wrr is rr and wlc is lc by definition, yet their response times differ: " +
		strings.Join(parts, ", ") + "."
}
