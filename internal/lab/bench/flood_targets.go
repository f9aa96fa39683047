// SPDX-License-Identifier: Apache-2.0

package bench

import "fmt"

// floodTargets are what a packet shall cost at most, compared with others. Of a
// run without imbang or without the others there are none.
func floodTargets(costs []FloodCost) (targets []Target) {
	for _, t := range []struct {
		competitor, traffic, other string
		most                       float64
	}{
		{viaTC, oneFlow, plain, 0.85},
		{viaTC, manyFlows, plain, 1},
		{viaTC, newFlows, nftables, 0.5},
		{viaXDP, oneFlow, plain, 0.25},
		{viaXDP, manyFlows, plain, 0.65},
		{viaTC, oneFlow, ipvs, 1},
		{viaTC, manyFlows, ipvs, 1},
		{viaTC, newFlows, ipvs, 1},
		{viaTC, floodRequests, plain, 1.2},
		{viaTC, floodReplies, plain, 1.25},
		{viaTC, floodOpening, plain, 2.4},
	} {
		for _, c := range costs {
			over, compared := c.Over[t.other]
			if c.Competitor == t.competitor && c.Traffic == t.traffic && compared {
				target := atMost(floodTarget(c, t.other), "", t.most, over)
				if c.Arrived < c.Sent {
					target = target.invalid(fmt.Sprintf("%d of %d packets were lost", c.Sent-c.Arrived, c.Sent))
				}
				targets = append(targets, target)
			}
		}
	}
	return targets
}

// floodTarget names one.
func floodTarget(c FloodCost, other string) string {
	what := map[string]string{oneFlow: "a packet of one flow", manyFlows: "a packet of many flows", newFlows: "a new connection",
		floodRequests: "a request of many addresses", floodReplies: "a reply to many addresses", floodOpening: "a new connection of many addresses"}
	return what[c.Traffic] + " by " + c.Competitor + ", " + c.Scheduler + " with " + fmt.Sprint(c.Servers, " servers") + ", ratio to " + other
}
