// SPDX-License-Identifier: Apache-2.0

package bench

import "slices"

// The measures of Packets. Those of few addresses are the earlier series: all flows of
// 2^15 ports are one client address's, and nobody replies.
const (
	fewEstablished = "established"
	fewNew         = "new"
	manyRequests   = "requests"
	manyReplies    = "replies"
	byIPv6         = "ipv6"
	byDirect       = "direct"
	byTunnel       = "tunnel"
	manyServices   = "services"
	byOpening      = "opening"
	byFill         = "fill"
	byRoutes       = "routes"
	byContention   = "contention"
)

// PacketMeasures lists them.
func PacketMeasures() []string {
	return []string{fewEstablished, fewNew, manyRequests, manyReplies, byIPv6, byDirect, byTunnel, manyServices, byOpening, byFill, byRoutes, byContention}
}

// PacketKind is the traffic of a row, and the table that it meets.
type PacketKind struct {
	Measure      string `json:"measure"`
	Traffic      string `json:"traffic"` // requests or replies of established connections; new: each packet opens one
	Family       string `json:"family"`
	Forward      string `json:"forward"` // masquerading, direct routing, or IP in IP
	Scheduler    string `json:"scheduler"`
	Services     int    `json:"services"`
	Servers      int    `json:"servers"`         // of each service
	Flows        int    `json:"flows,omitempty"` // established, in rotation
	Addresses    int    `json:"client_addresses"`
	Filled       int    `json:"filled_percent,omitempty"` // of the table of connections
	RouteChanges int    `json:"route_changes_per_s,omitempty"`
	CPUs         int    `json:"cpus"`
}

// Kinds of traffic and of forwarding.
const (
	requests = "requests"
	replies  = "replies"
	opens    = "new"

	masquerade = "masquerade"
	direct     = "direct"
	ipip       = "ipip"

	ipv4 = "ipv4"
	ipv6 = "ipv6"
)

// packetCase is a row's kind, and how it is measured.
type packetCase struct {
	PacketKind
	Connections int // room in the table
	Packets     int // of a round, by each CPU
	Lead        int // ahead of them, not counted: what was measured before used the caches
}

// The sizes of the measures.
const (
	manyFlowsTwo   = 1 << 16 // established
	mostFlows      = 1 << 20
	manyAddresses  = 1 << 14 // of clients
	mostAddresses  = 1 << 16
	mostServices   = 1 << 14
	fewServers     = 10
	mostServers    = 10_000
	filledTable    = 1 << 20 // connections
	changesASecond = 100

	leastTable = 1 << 16
	openLead   = 64
)

// trafficRounds are those of the measures of many addresses: enough for an interval.
const trafficRounds = 9

// groups are the cases of the measures that were asked for. Those of a group take turns.
func (c PacketsConfig) groups() (all [][]packetCase) {
	for _, m := range []struct {
		name  string
		cases func() [][]packetCase
	}{
		{manyRequests, func() [][]packetCase { return c.requests(manyRequests, ipv4, masquerade) }},
		{manyReplies, func() [][]packetCase { return c.replies() }},
		{byIPv6, func() [][]packetCase {
			return append(c.requests(byIPv6, ipv6, masquerade),
				[]packetCase{c.reply(byIPv6, ipv6, manyFlowsTwo, mostAddresses)},
				[]packetCase{c.opening(byIPv6, ipv6, fewServers, 1)})
		}},
		{byDirect, func() [][]packetCase { return c.requests(byDirect, ipv4, direct) }},
		{byTunnel, func() [][]packetCase { return c.requests(byTunnel, ipv4, ipip) }},
		{manyServices, func() [][]packetCase { return [][]packetCase{{c.request(1), c.request(mostServices)}} }},
		{byOpening, func() [][]packetCase {
			return [][]packetCase{{c.opening(byOpening, ipv4, fewServers, 1), c.opening(byOpening, ipv4, mostServers, 1),
				c.opening(byOpening, ipv4, fewServers, mostServices)}}
		}},
		{byFill, func() [][]packetCase { return [][]packetCase{{c.filled(0), c.filled(60), c.filled(95)}} }},
		{byRoutes, func() [][]packetCase { return [][]packetCase{{c.changing(0), c.changing(changesASecond)}} }},
		{byContention, func() [][]packetCase { return [][]packetCase{{c.together(1), c.together(2)}} }},
	} {
		if slices.Contains(c.Measures, m.name) {
			all = append(all, distinct(m.cases())...)
		}
	}
	return all
}

// distinct leaves out what PacketsConfig.Most has made the same as a case before it.
func distinct(groups [][]packetCase) (all [][]packetCase) {
	seen := map[PacketKind]bool{}
	for _, g := range groups {
		var left []packetCase
		for _, one := range g {
			if !seen[one.PacketKind] {
				seen[one.PacketKind] = true
				left = append(left, one)
			}
		}
		if len(left) > 0 {
			all = append(all, left)
		}
	}
	return all
}

// most is a size of a case, where the configuration allows it.
func (c PacketsConfig) most(n int) int {
	if c.Most > 0 {
		return min(n, c.Most)
	}
	return n
}

// openingRounds is how many rounds open connections of a case: by each path, and one ahead.
func (c PacketsConfig) openingRounds() int { return len(trafficPaths) * (c.rounds(trafficRounds) + 1) }

func (c PacketsConfig) established(k PacketKind, flows, addresses int) packetCase {
	k.Flows, k.Addresses, k.CPUs = c.most(flows), c.most(addresses), 1
	once := min(k.Flows, manyFlowsTwo)
	return packetCase{PacketKind: k, Connections: max(leastTable, 2*k.Flows), Packets: max(c.Packets, once), Lead: once}
}

// requests are those of one flow, of many, and of most.
func (c PacketsConfig) requests(measure, family, forward string) (all [][]packetCase) {
	kind := PacketKind{Measure: measure, Traffic: requests, Family: family, Forward: forward, Scheduler: "rr", Services: 1, Servers: 3}
	for _, of := range [][2]int{{1, 1}, {manyFlowsTwo, manyAddresses}, {mostFlows, mostAddresses}} {
		all = append(all, []packetCase{c.established(kind, of[0], of[1])})
	}
	return all
}

func (c PacketsConfig) request(services int) packetCase {
	return c.established(PacketKind{Measure: manyServices, Traffic: requests, Family: ipv4, Forward: masquerade, Scheduler: "rr",
		Services: c.most(services), Servers: 1}, manyFlowsTwo, manyAddresses)
}

// replies are those to one address, of one flow and of all its ports, and to more.
func (c PacketsConfig) replies() (all [][]packetCase) {
	for _, of := range [][2]int{{1, 1}, {manyFlowsTwo / 2, 1}, {manyFlowsTwo, 1 << 10}, {manyFlowsTwo, manyAddresses}, {manyFlowsTwo, mostAddresses}} {
		all = append(all, []packetCase{c.reply(manyReplies, ipv4, of[0], of[1])})
	}
	return all
}

func (c PacketsConfig) reply(measure, family string, flows, addresses int) packetCase {
	return c.established(PacketKind{Measure: measure, Traffic: replies, Family: family, Forward: masquerade, Scheduler: "rr",
		Services: 1, Servers: 3}, flows, addresses)
}

// changing are replies while routes change that have nothing to do with them.
func (c PacketsConfig) changing(aSecond int) packetCase {
	one := c.reply(byRoutes, ipv4, manyFlowsTwo, mostAddresses)
	one.RouteChanges = aSecond
	one.Packets = max(one.Packets, c.most(1<<19)) // some changes in each round
	return one
}

// opening are new connections, in a table that was empty.
func (c PacketsConfig) opening(measure, family string, servers, services int) packetCase {
	k := PacketKind{Measure: measure, Traffic: opens, Family: family, Forward: masquerade, Scheduler: "wlc",
		Services: c.most(services), Servers: c.most(servers), Addresses: c.most(manyAddresses), CPUs: 1}
	return packetCase{PacketKind: k, Connections: max(leastTable, 2*(c.Packets+openLead)*c.openingRounds()), Packets: c.Packets, Lead: openLead}
}

// filled are new connections in a table in which others are. While they are measured it
// fills by 2 percent of it.
func (c PacketsConfig) filled(percent int) packetCase {
	one := c.opening(byFill, ipv4, fewServers, 1)
	one.Filled, one.Connections, one.Lead = percent, min(filledTable, 16*c.most(filledTable)), 0
	one.Packets = max(1, min(c.Packets, one.Connections/50/c.openingRounds()))
	return one
}

// together are new connections that as many CPUs open at once.
func (c PacketsConfig) together(cpus int) packetCase {
	one := c.opening(byContention, ipv4, fewServers, 1)
	one.CPUs = cpus
	one.Connections *= 2 // the same table for one and for two
	return one
}
