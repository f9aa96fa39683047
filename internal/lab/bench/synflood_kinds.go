// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"imbang/internal/lab/stats"
	"imbang/internal/lab/topology"
)

// FloodKind is what a flood consists of.
type FloodKind string

const (
	FloodSYN       FloodKind = "syn"       // SYNs of TCP, each from another address
	FloodHandshake FloodKind = "handshake" // a SYN, and a blind acknowledgement behind it
	FloodUDP       FloodKind = "udp"       // datagrams to a service of UDP, each from another address
	FloodSCTP      FloodKind = "sctp"      // INITs to a service of SCTP, each from another address
	FloodPrefix    FloodKind = "prefix"    // SYNs, each from another address of one IPv6 /64
)

// FloodKinds are all of them.
var FloodKinds = []FloodKind{FloodSYN, FloodHandshake, FloodUDP, FloodSCTP, FloodPrefix}

// Check reports what is no kind.
func (k FloodKind) Check() error {
	if slices.Contains(FloodKinds, k) {
		return nil
	}
	names := make([]string, len(FloodKinds))
	for i, one := range FloodKinds {
		names[i] = string(one)
	}
	return fmt.Errorf("--kind %s: want %s", k, strings.Join(names, ", "))
}

func (k FloodKind) family() topology.Family {
	if k == FloodPrefix {
		return topology.IPv6
	}
	return topology.IPv4
}

// tcp reports whether the flooded service is one of TCP, which honest clients use too.
func (k FloodKind) tcp() bool { return k != FloodUDP && k != FloodSCTP }

// option is ipvsadm's, of the flooded service.
func (k FloodKind) option() string {
	switch k {
	case FloodUDP:
		return "-u"
	case FloodSCTP:
		return "--sctp-service"
	}
	return "-t"
}

// policies are what is compared, the defaults last.
func (k FloodKind) policies() []floodPolicy {
	auto := floodPolicy{"syn_defence", []string{"syn_defence=auto"}}
	if k != FloodSYN {
		return []floodPolicy{auto}
	}
	return []floodPolicy{{"none", []string{"syn_defence=never"}}, {"drop_entry", []string{"syn_defence=never", "drop_entry=3"}}, auto}
}

// targets are the rate's and what a flood may do to others.
func (k FloodKind) targets(p *SynFloodPolicy) []Target {
	answered := 0.999
	if k == FloodSYN {
		answered = 1
	}
	of := func(n, all int) stats.Summary { return stats.Summarize([]float64{share(n, all)}) }
	all := []Target{
		atLeast("the flood that is defended against", "packets/s", 200_000, p.Rate),
		atLeast("requests of established connections that are answered", "", answered, of(p.Requests-p.Lost-p.Broken, p.Requests)),
		atLeast("new connections to a service that is not flooded that succeed", "", 0.99, p.OthersSuccess),
	}
	if k.tcp() {
		all = append(all, atLeast("new connections that succeed", "", 0.95, p.Success))
	}
	if k == FloodUDP {
		all = append(all, atLeast("flows of UDP that still reach their server", "", 1, of(p.FlowsAlive, p.Flows)))
	}
	return all
}

type floodPolicy struct {
	name     string
	settings []string
}

// The hop that invented addresses are behind, and the network that they are of.
const abyssMAC = "02:00:00:0a:ff:fe"

type abyss struct {
	hop netip.Addr // on the clients' network
	all netip.Prefix
}

func (k FloodKind) abyss() abyss {
	if k == FloodPrefix {
		return abyss{netip.MustParseAddr("fd00:10::ffff"), netip.MustParsePrefix("2001:db8::/64")}
	}
	return abyss{netip.MustParseAddr("10.10.255.254"), netip.MustParsePrefix("0.0.0.0/0")}
}
