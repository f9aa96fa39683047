// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"slices"
	"strings"

	"imbang/internal/lab/stats"
)

// pathPeers are the other balancers, and pathReferences all that ratios are to.
var (
	pathPeers      = []string{nftFlow, "nftables", "haproxy-tcp", "nginx-stream"}
	pathReferences = append(slices.Clone(pathPeers), yardstick)
)

// conclude sums up the rounds.
func (p *pathRun) conclude() *PathResult {
	r := &p.result
	p.balance()
	r.Rounds, r.Loop, r.Others = p.done, stats.Summarize(p.loop), stats.Summarize(p.shares)
	for _, name := range p.Competitors {
		if p.samples[name] == nil {
			continue
		}
		for _, m := range pathMeasures {
			row := PathRow{Competitor: name, Measure: m.name, Unit: m.unit, Rounds: p.samples[name][m.name]}
			if len(row.Rounds) == 0 {
				continue // plain forwarding balances nothing
			}
			row.Value = stats.Summarize(row.Rounds)
			if !slices.Contains(pathDifferences, m.name) {
				p.compareWith(&row)
			}
			r.Rows = append(r.Rows, row)
		}
		t := p.tallies[name]
		t.Shares = t.shares()
		r.Requests = append(r.Requests, t.PathLoad)
	}
	r.Rows = r.byMeasure()
	r.Targets = p.targets()
	return r
}

// compareWith fills in the ratios of a row.
func (p *pathRun) compareWith(row *PathRow) {
	for _, other := range slices.Concat(pathReferences, []string{strings.ReplaceAll(row.Competitor, again, "")}) {
		if other == row.Competitor || p.samples[other] == nil {
			continue
		}
		if row.Over == nil {
			row.Over, row.Within = map[string]stats.Summary{}, map[string]stats.Interval{}
		}
		list := p.ratios(row.Competitor, other, row.Measure)
		row.Over[other], row.Within[other] = stats.Summarize(list), stats.MedianInterval(list, confidence)
	}
}

// confidence is that of intervals.
const confidence = 0.95

// ratios are those of two competitors, round by round.
func (p *pathRun) ratios(name, other, measure string) (list []float64) {
	mine, theirs := p.samples[name][measure], p.samples[other][measure]
	for i := range mine {
		if theirs[i] > 0 {
			list = append(list, mine[i]/theirs[i])
		}
	}
	return list
}

// pathTarget is a ratio to another competitor, with its bound.
type pathTarget struct {
	other, measure string
	least, most    float64
}

// pathTargets are the targets of imbang's ratios.
var pathTargets = []pathTarget{
	{yardstick, pathNew, 0.95, 0}, {yardstick, pathKeepAlive, 1, 0}, {yardstick, pathBulk, 1, 0},
	{yardstick, pathCPUConn, 0, 1.05}, {yardstick, pathP99, 0, 1},
	{"nftables", pathNew, 1.15, 0}, {"nftables", pathKeepAlive, 1.15, 0},
	{"haproxy-tcp", pathNew, 1.6, 0}, {"haproxy-tcp", pathKeepAlive, 1.6, 0}, {"haproxy-tcp", pathBulk, 4, 0},
}

// targets compares imbang's ratios with their targets.
func (p *pathRun) targets() (list []Target) {
	ordered := slices.Clone(pathTargets)
	slices.SortStableFunc(ordered, func(a, b pathTarget) int {
		order := p.result.References(a.measure)
		return cmp.Or(cmp.Compare(measureIndex(a.measure), measureIndex(b.measure)),
			cmp.Compare(slices.Index(order, a.other), slices.Index(order, b.other)))
	})
	for _, t := range ordered {
		if p.samples[ownName] == nil || p.samples[t.other] == nil {
			continue
		}
		name, ratios := t.measure+", ratio to "+t.other, p.ratios(ownName, t.other, t.measure)
		one := atMost(name, "", t.most, stats.Summarize(ratios))
		if t.least > 0 {
			one = atLeast(name, "", t.least, stats.Summarize(ratios))
		}
		list = append(list, one.within(stats.MedianInterval(ratios, confidence)))
	}
	return list
}

// byMeasure are the rows measure by measure.
func (r *PathResult) byMeasure() (list []PathRow) {
	for _, m := range pathMeasures {
		for _, row := range r.Rows {
			if row.Measure == m.name {
				list = append(list, row)
			}
		}
	}
	return list
}

// References are those that rows of a measure have ratios to: the other
// balancers, the fastest first, then plain forwarding and what remains.
func (r *PathResult) References(measure string) (list []string) {
	has, median := map[string]bool{}, map[string]float64{}
	for _, row := range r.Rows {
		if row.Measure != measure {
			continue
		}
		median[row.Competitor] = row.Value.Median
		if moreIsBetter(row.Unit) {
			median[row.Competitor] *= -1
		}
		for other := range row.Over {
			has[other] = true
		}
	}
	peers := slices.Clone(pathPeers)
	slices.SortStableFunc(peers, func(a, b string) int { return cmp.Compare(median[a], median[b]) })
	for _, other := range slices.Concat(peers, []string{yardstick}, PathCompetitors()) {
		if has[other] && !slices.Contains(list, other) {
			list = append(list, other)
		}
	}
	return list
}

// moreIsBetter reports whether a unit is that of a rate, not of a time.
func moreIsBetter(unit string) bool { return strings.HasSuffix(unit, "/s") }

func measureIndex(name string) int {
	return slices.IndexFunc(pathMeasures, func(m pathMeasure) bool { return m.name == name })
}
