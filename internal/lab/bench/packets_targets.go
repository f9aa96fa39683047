// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"

	"imbang/internal/lab/stats"
)

// relativeTargets compare rows of one group with each other, round by round.
func relativeTargets(rows []TrafficCost) (targets []Target) {
	for _, t := range []struct {
		name    string
		measure string
		of      func(PacketKind) bool
		than    func(PacketKind) bool
		most    float64
	}{
		{"new connection, wlc, 10000 servers over 10", byOpening,
			func(k PacketKind) bool { return k.Servers == mostServers },
			func(k PacketKind) bool { return k.Servers == fewServers && k.Services == 1 }, 1.15},
		{"new connection, wlc, 16384 services over 1", byOpening,
			func(k PacketKind) bool { return k.Services == mostServices },
			func(k PacketKind) bool { return k.Servers == fewServers && k.Services == 1 }, 1.05},
		{"new connection, wlc, a table 95 % full over an empty one", byFill,
			func(k PacketKind) bool { return k.Filled == 95 }, func(k PacketKind) bool { return k.Filled == 0 }, 1.1},
		{"reply to 65536 addresses, 100 route changes a second over none", byRoutes,
			func(k PacketKind) bool { return k.RouteChanges == changesASecond && k.Addresses == mostAddresses },
			func(k PacketKind) bool { return k.RouteChanges == 0 && k.Addresses == mostAddresses }, 1.2},
	} {
		for _, path := range trafficPaths {
			of, is := rowOf(rows, t.measure, path.name, t.of)
			than, was := rowOf(rows, t.measure, path.name, t.than)
			if is && was {
				ratios := ratiosOf(of.rounds, than.rounds)
				targets = append(targets, atMost(t.name+", "+path.name, "", t.most, stats.Summarize(ratios)).
					within(stats.MedianInterval(ratios, confidence)))
			}
		}
	}
	for _, path := range trafficPaths {
		two, is := rowOf(rows, byContention, path.name, func(k PacketKind) bool { return k.CPUs == 2 })
		one, was := rowOf(rows, byContention, path.name, func(k PacketKind) bool { return k.CPUs == 1 })
		if is && was {
			var gain []float64
			for _, r := range ratiosOf(one.rounds, two.rounds) {
				gain = append(gain, 2*r)
			}
			targets = append(targets, atLeast("new connections of two CPUs at once over one, "+path.name, "", 1.8, stats.Summarize(gain)).
				within(stats.MedianInterval(gain, confidence)))
		}
	}
	return targets
}

// packetShares are targets of costs, as shares of those of the build that they were set
// for (be2e8518): what may be left of so many nanoseconds of that build.
var packetShares = []struct {
	measure, traffic, path string
	flows, addresses       int // of new connections: no flows, and addresses are not compared
	now, target            float64
}{
	{manyRequests, requests, "xdp", 1, 1, 80, 75},
	{manyRequests, requests, "xdp", manyFlowsTwo, manyAddresses, 229, 210},
	{manyRequests, requests, "xdp", mostFlows, mostAddresses, 281, 265},
	{byDirect, requests, "xdp", 1, 1, 156, 75},
	{byDirect, requests, "xdp", manyFlowsTwo, manyAddresses, 325, 205},
	{byDirect, requests, "xdp", mostFlows, mostAddresses, 478, 260},
	{manyRequests, requests, "tc", 1, 1, 128, 115},
	{manyRequests, requests, "tc", manyFlowsTwo, manyAddresses, 291, 250},
	{manyRequests, requests, "tc", mostFlows, mostAddresses, 329, 290},
	{byDirect, requests, "tc", 1, 1, 185, 100},
	{byDirect, requests, "tc", manyFlowsTwo, manyAddresses, 317, 235},
	{byDirect, requests, "tc", mostFlows, mostAddresses, 394, 275},
	{byTunnel, requests, "tc", 1, 1, 291, 180},
	{byTunnel, requests, "tc", manyFlowsTwo, manyAddresses, 455, 330},
	{byTunnel, requests, "tc", mostFlows, mostAddresses, 616, 400},
	{manyReplies, replies, "xdp", manyFlowsTwo, mostAddresses, 428, 260},
	{manyReplies, replies, "tc", manyFlowsTwo, mostAddresses, 489, 310},
	{byOpening, opens, "xdp", 0, 0, 959, 610},
	{byOpening, opens, "tc", 0, 0, 1084, 730},
}

// shareTargets compare costs with those of the other build, if there is one.
func shareTargets(rows []TrafficCost) (targets []Target) {
	for _, s := range packetShares {
		row, is := rowOf(rows, s.measure, s.path, func(k PacketKind) bool {
			if s.traffic == opens {
				return k.Servers == fewServers && k.Services == 1
			}
			return k.Flows == s.flows && k.Addresses == s.addresses
		})
		if !is || row.Over == nil {
			continue
		}
		name := fmt.Sprintf("%s, %s, %s, %d flows, share of the other build", s.measure, row.Traffic, s.path, s.flows)
		if s.traffic == opens {
			name = fmt.Sprintf("new connection, wlc, 10 servers, empty table, %s, share of the other build", s.path)
		}
		target := atMost(name, "", s.target/s.now, *row.Over).within(*row.Within)
		if row.Passed {
			target = target.invalid("XDP leaves the packets to the classifiers")
		}
		targets = append(targets, target)
	}
	return targets
}

// rowOf is the row of a measure and path that is of a kind.
func rowOf(rows []TrafficCost, measure, path string, is func(PacketKind) bool) (TrafficCost, bool) {
	for _, r := range rows {
		if r.Measure == measure && r.Path == path && is(r.PacketKind) {
			return r, true
		}
	}
	return TrafficCost{}, false
}
