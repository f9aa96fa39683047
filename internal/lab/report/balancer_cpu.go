// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"

	"imbang/internal/lab/record"
)

// balancerCPU is what balancing costs, by one measure for all engines: the CPU
// time of the whole machine per connection, less that of plain forwarding to as
// many servers under the same load in the same block. Engines account for themselves differently:
// a kernel's NAT has no account, and BPF programs and processes leave out the
// packets that softirqs handle on their behalf.
//
// The definition belongs to the key. Another definition takes another key, so
// that no two stored figures of one name mean different things.
var balancerCPU = Metric{
	Key: "cpu_balancing", Title: "CPU of balancing", Name: "CPU time of balancing", Unit: "us/connection", Decimals: 1, Lowest: true,
	Meaning: "CPU time of the whole machine, softirqs included, less that of plain forwarding (engine direct) to as many servers under the " +
		"same load in the same block; blank where that was not measured or lost requests",
	fields: []string{"connections"},
	beside: func(s, plain record.Sample) (float64, bool) {
		own, known := machineEach(s)
		forwarding, alsoKnown := machineEach(plain)
		return own - forwarding, known && alsoKnown
	},
}

// machineEach is the whole machine's CPU time for each connection [us].
func machineEach(s record.Sample) (float64, bool) {
	v, ok := perConnection(s.CPU.MachineNS, s.Load)
	return v, ok && s.CPU.MachineNS > 0
}

// forwarder is the name of the engine that only forwards.
const forwarder = "direct"

// newPlain finds plain forwarding's samples, by condition and block. One that
// lost requests did less work than its competitors and is none to subtract. Of
// several, that with the most servers is the one under the same load.
func newPlain(samples []record.Sample) map[record.Condition]map[int]record.Sample {
	all := map[record.Condition]map[int]record.Sample{}
	for _, s := range samples {
		if s.Engine != forwarder || s.Error != "" || s.Load == nil || s.Load.Loss.Total() > 0 || otherReplies(s.Load) > 0 {
			continue
		}
		if all[s.Condition] == nil {
			all[s.Condition] = map[int]record.Sample{}
		}
		if had, ok := all[s.Condition][s.Block]; !ok || had.Servers < s.Servers {
			all[s.Condition][s.Block] = s
		}
	}
	return all
}

// plainOf is the sample to subtract; plain forwarding has none itself. Fewer
// servers are full earlier, and work and wake up otherwise: a difference to them
// would not be the balancer's.
func plainOf(plain map[int]record.Sample, s record.Sample) *record.Sample {
	p, ok := plain[s.Block]
	if !ok || s.Engine == forwarder || p.Servers != s.Servers {
		return nil
	}
	return &p
}

// saturated is the share of the machine from which it is taken as fully busy.
const saturated = 0.98

// capped marks the runs of an open loop in which the machine was fully busy: a
// balancer that costs more then shows in what is served late or lost, not in
// CPU time. In a closed loop fewer connections share all CPU time instead.
func capped(s record.Sample) []string {
	if s.CPU.MachineNS == 0 || s.Closed() || s.CPU.MachineBusy < saturated {
		return nil
	}
	return []string{"the whole machine was busy at a given rate: the CPU time of balancing is a lower bound"}
}

// noPlain says why no competitor has a figure.
func noPlain(samples []record.Sample, forwarding map[record.Condition]map[int]record.Sample) []string {
	measured := func(s record.Sample) bool { return s.CPU.MachineNS > 0 }
	forwarded := func(s record.Sample) bool { return s.Engine == forwarder }
	compared := func(s record.Sample) bool { return plainOf(forwarding[s.Condition], s) != nil }
	switch {
	case slices.ContainsFunc(samples, compared) || !slices.ContainsFunc(samples, measured):
		return nil
	case len(forwarding) > 0:
		return []string{"CPU of balancing has no figure: plain forwarding (engine direct) had another number of servers than every competitor."}
	case slices.ContainsFunc(samples, forwarded):
		return []string{"CPU of balancing has no figure: plain forwarding (engine direct) lost requests under every condition."}
	}
	return []string{"CPU of balancing has no figure: plain forwarding (engine direct) is not among the competitors."}
}
