// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"imbang/internal/lab/stats"
)

// pathReferences are what the others are compared with.
var pathReferences = []string{yardstick, "nftables", "haproxy-tcp"}

// conclude sums up the first rounds.
func (p *pathRun) conclude(rounds int) *PathResult {
	r := &p.result
	r.Rounds, r.Loop = rounds, stats.Summarize(p.loop)
	for _, name := range p.Competitors {
		if p.samples[name] == nil {
			continue
		}
		for _, m := range pathMeasures {
			row := PathRow{Competitor: name, Measure: m.name, Unit: m.unit, Rounds: p.samples[name][m.name][:rounds]}
			row.Value = stats.Summarize(row.Rounds)
			for _, other := range pathReferences {
				if other != name && p.samples[other] != nil {
					if row.Over == nil {
						row.Over = map[string]stats.Summary{}
					}
					row.Over[other] = p.ratio(name, other, m.name, rounds)
				}
			}
			r.Rows = append(r.Rows, row)
		}
		l := p.loads[name]
		l.Shares = p.shares(name)
		r.Requests = append(r.Requests, *l)
	}
	r.Rows = r.byMeasure()
	r.Targets = p.targets(rounds)
	return r
}

// ratio is that of two competitors, round by round.
func (p *pathRun) ratio(name, other, measure string, rounds int) stats.Summary {
	mine, theirs := p.samples[name][measure], p.samples[other][measure]
	var list []float64
	for i := range rounds {
		if theirs[i] > 0 {
			list = append(list, mine[i]/theirs[i])
		}
	}
	return stats.Summarize(list)
}

// pathTargets are the ratios that imbang shall reach.
var pathTargets = []struct {
	other, measure string
	least, most    float64
}{
	{yardstick, pathNew, 0.95, 0}, {yardstick, pathKeepAlive, 1, 0}, {yardstick, pathBulk, 1, 0},
	{yardstick, pathCPUConn, 0, 1.05}, {yardstick, pathP99, 0, 1},
	{"nftables", pathNew, 1.15, 0}, {"nftables", pathKeepAlive, 1.15, 0},
	{"haproxy-tcp", pathNew, 1.6, 0}, {"haproxy-tcp", pathKeepAlive, 1.6, 0}, {"haproxy-tcp", pathBulk, 4, 0},
}

// targets compares imbang's ratios with what they shall be.
func (p *pathRun) targets(rounds int) (list []Target) {
	for _, t := range pathTargets {
		if p.samples[ownName] == nil || p.samples[t.other] == nil {
			continue
		}
		name, v := t.measure+", ratio to "+t.other, p.ratio(ownName, t.other, t.measure, rounds)
		if t.least > 0 {
			list = append(list, atLeast(name, "", t.least, v))
		} else {
			list = append(list, atMost(name, "", t.most, v))
		}
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
	for _, other := range pathReferences {
		for _, row := range r.Rows {
			if _, ok := row.Over[other]; ok {
				list = append(list, other)
				break
			}
		}
	}
	return list
}
