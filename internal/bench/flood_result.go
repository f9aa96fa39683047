// SPDX-License-Identifier: Apache-2.0

package bench

import "imbang/internal/lab/stats"

// conclude makes costs of the samples, in the order in which they are read.
func (f *flood) conclude(list []competitor) {
	known := map[string]competitor{}
	for _, c := range list {
		known[c.name] = c
	}
	for _, s := range f.Schedulers {
		for _, n := range f.Servers {
			for _, traffic := range traffics {
				for _, c := range competitors {
					if _, ok := known[c.name]; ok && known[c.name].has(s) {
						f.result.Costs = append(f.result.Costs, f.cost(floodCell{setting{s, n}, c.name, traffic}, known))
					}
				}
			}
		}
	}
	f.result.Targets = floodTargets(f.result.Costs)
}

// cost is that of one cell.
func (f *flood) cost(cell floodCell, known map[string]competitor) FloodCost {
	c := known[cell.competitor]
	cost := FloodCost{
		Competitor: c.name, Scheduler: cell.scheduler, Servers: cell.servers, Traffic: cell.traffic,
		Flows: map[string]int{oneFlow: 1, manyFlows: f.Flows, newFlows: f.Flows - 1}[cell.traffic],
		Base:  c.base, Over: map[string]stats.Summary{},
	}
	var whole []float64
	for _, m := range f.samples[cell] {
		whole = append(whole, m.ns)
		cost.Sent, cost.Arrived = cost.Sent+m.sent, cost.Arrived+m.arrived
	}
	own := f.own(cell, c)
	cost.NS, cost.Own = stats.Summarize(whole), stats.Summarize(own)
	for _, name := range compared {
		other, ok := known[name]
		if !ok || name == c.name || c.idle || !other.has(cell.scheduler) {
			continue
		}
		their := cell
		their.competitor = name
		var ratios []float64
		for i, ns := range f.own(their, other) {
			ratios = append(ratios, own[i]/ns)
		}
		cost.Over[name] = stats.Summarize(ratios)
	}
	return cost
}

// own is a competitor's cost without that of its base, round by round.
func (f *flood) own(cell floodCell, c competitor) (each []float64) {
	base := cell
	base.competitor = c.base
	for i, m := range f.samples[cell] {
		each = append(each, m.ns-f.samples[base][i].ns)
	}
	return each
}
