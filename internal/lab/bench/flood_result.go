// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"slices"

	"imbang/internal/lab/stats"
)

// conclude makes costs of the samples, in the order in which they are read.
func (f *flood) conclude(list []competitor) {
	known := map[string]competitor{}
	for _, c := range list {
		known[c.name] = c
	}
	for _, p := range f.parts() {
		for _, s := range f.settings(p) {
			for _, traffic := range traffics {
				if !p.has(traffic) || !slices.Contains(f.Traffic, traffic) {
					continue
				}
				for _, c := range f.field() {
					if _, ok := known[c.name]; ok && known[c.name].has(s.scheduler) {
						f.result.Costs = append(f.result.Costs, f.cost(floodCell{s, c.name, traffic}, known, p))
					}
				}
			}
		}
	}
	f.result.Targets = floodTargets(f.result.Costs)
}

// cost is that of one cell.
func (f *flood) cost(cell floodCell, known map[string]competitor, p floodPart) FloodCost {
	c := known[cell.competitor]
	cost := FloodCost{
		Competitor: c.name, Scheduler: cell.scheduler, Servers: cell.servers, Traffic: cell.traffic,
		Base: c.base, Over: map[string]stats.Summary{},
	}
	for _, k := range p.kinds {
		if k.name == cell.traffic {
			cost.Flows = min(k.flows, k.flows-k.first)
			cost.Clients = min(cost.Flows, 1<<p.bits)
		}
	}
	var whole []float64
	for _, m := range f.samples[cell] {
		whole = append(whole, m.ns)
		cost.Sent, cost.Arrived = cost.Sent+m.sent, cost.Arrived+m.arrived
	}
	own := f.own(cell, c.base)
	cost.NS, cost.Own = stats.Summarize(whole), stats.Summarize(own)
	for _, name := range append(slices.Clone(compared), otherName(c.name)) {
		other, ok := known[name]
		if !ok || name == c.name || c.idle || !other.has(cell.scheduler) {
			continue
		}
		their := cell
		their.competitor = name
		cost.Over[name] = f.over(cell, their, common(c, other))
	}
	return cost
}

// common is the base that is taken off both sides of a ratio: what both have in
// common. A socket buffer that only one of them needs is its own cost: if one
// side does without, both are compared by how much more they are than noopXDP.
func common(a, b competitor) string {
	if a.base == noopXDP || b.base == noopXDP {
		return noopXDP
	}
	return noop
}

// over is the ratio of two costs without that of the base, round by round.
func (f *flood) over(cell, their floodCell, base string) stats.Summary {
	mine, theirs := f.own(cell, base), f.own(their, base)
	var ratios []float64
	for i := range mine {
		ratios = append(ratios, mine[i]/theirs[i])
	}
	return stats.Summarize(ratios)
}

// own is a cost without that of a base, round by round.
func (f *flood) own(cell floodCell, of string) (each []float64) {
	base := cell
	base.competitor = of
	for i, m := range f.samples[cell] {
		each = append(each, m.ns-f.samples[base][i].ns)
	}
	return each
}
