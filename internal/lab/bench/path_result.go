// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"slices"
	"strings"

	"imbang/internal/lab/stats"
)

// pathReferences are what the others are compared with.
var pathReferences = []string{yardstick, "nftables", "haproxy-tcp"}

// conclude sums up the rounds.
func (p *pathRun) conclude() *PathResult {
	r := &p.result
	r.Rounds, r.Loop, r.Others = p.done, stats.Summarize(p.loop), stats.Summarize(p.shares)
	for _, name := range p.Competitors {
		if p.samples[name] == nil {
			continue
		}
		for _, m := range pathMeasures {
			row := PathRow{Competitor: name, Measure: m.name, Unit: m.unit, Rounds: p.samples[name][m.name]}
			row.Value = stats.Summarize(row.Rounds)
			p.compareWith(&row)
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

// pathTargets are the ratios that are imbang's targets.
var pathTargets = []struct {
	other, measure string
	least, most    float64
}{
	{yardstick, pathNew, 0.95, 0}, {yardstick, pathKeepAlive, 1, 0}, {yardstick, pathBulk, 1, 0},
	{yardstick, pathCPUConn, 0, 1.05}, {yardstick, pathP99, 0, 1},
	{"nftables", pathNew, 1.15, 0}, {"nftables", pathKeepAlive, 1.15, 0},
	{"haproxy-tcp", pathNew, 1.6, 0}, {"haproxy-tcp", pathKeepAlive, 1.6, 0}, {"haproxy-tcp", pathBulk, 4, 0},
}

// targets compares imbang's ratios with their targets.
func (p *pathRun) targets() (list []Target) {
	for _, t := range pathTargets {
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

// References are those that rows have ratios to.
func (r *PathResult) References() (list []string) {
	has := map[string]bool{}
	for _, row := range r.Rows {
		for other := range row.Over {
			has[other] = true
		}
	}
	for _, other := range slices.Concat(pathReferences, PathCompetitors()) {
		if has[other] && !slices.Contains(list, other) {
			list = append(list, other)
		}
	}
	return list
}
