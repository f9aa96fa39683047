// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"imbang/internal/model"
)

type server struct {
	from         place
	what         string // the words of its line
	addr         netip.Addr
	port         uint16   // 0: the service's
	method       string   // of forwarding
	keys         []string // of a mapping in one line, behind the address
	weight       int64    // -1: the default
	dynamic      bool     // a script sets the weight, a share of dynamicWeight
	upper, lower int64
	checks       []string // nil: says nothing
	inhibit      bool     // inhibit_on_failure of keepalived
}

func (s *server) String() string {
	keys := append([]string{"address: " + endpoint(s.addr, s.port)}, s.keys...)
	weight := s.weight
	if s.dynamic {
		weight = dynamicWeight
	}
	if weight >= 0 {
		keys = append(keys, fmt.Sprintf("weight: %d", weight))
	}
	if s.upper > 0 {
		keys = append(keys, fmt.Sprintf("upper: %d", s.upper))
	}
	if s.lower > 0 {
		keys = append(keys, fmt.Sprintf("lower: %d", s.lower))
	}
	if s.checks != nil {
		keys = append(keys, "checks: ["+strings.Join(s.checks, ", ")+"]")
	}
	return "{" + strings.Join(keys, ", ") + "}"
}

// reachable reports whether a service can have a virtual address; if not, it is listed.
func (r *Result) reachable(at place, what string, a netip.Addr) bool {
	if model.Destination(a) {
		return true
	}
	why := "no packet has this destination"
	if a.IsUnspecified() {
		why += ", and Linux does not take it for every address: write the virtual address"
	} else {
		why += " that a virtual service can balance"
	}
	r.lose(at, what, "%s; left out with its servers", why)
	return false
}

// settle leaves out what a service cannot have: servers of another address family without
// a tunnel, two of the same address, ports that no packet gets to, thresholds that the
// kernel refuses.
func (r *Result) settle(s *service) {
	var servers []server
	known := map[netip.AddrPort]bool{}
	for _, one := range s.servers {
		if !r.fits(s, &one) {
			continue
		}
		at := one.endpoint(s)
		if known[at] {
			r.lose(one.from, one.what, "the service has a server of this address already: left out")
			continue
		}
		known[at] = true
		servers = append(servers, one)
	}
	s.servers = servers
	if s.sorry == nil {
		return
	}
	sorry := *s.sorry
	s.sorry = nil
	if r.fits(s, &sorry) {
		s.sorry = &sorry
	}
}

func (s *server) endpoint(of *service) netip.AddrPort {
	if s.port == 0 {
		return netip.AddrPortFrom(s.addr, of.port)
	}
	return netip.AddrPortFrom(s.addr, s.port)
}

const otherFamily = "of another address family than the service, which only tunnels allow: left out"

// fits makes a server one that a service can have, if that is possible.
func (r *Result) fits(of *service, s *server) bool {
	if !model.SingleHost(s.addr) {
		r.lose(s.from, s.what, "is not the address of a single host, and Linux refuses it: left out")
		return false
	}
	if s.addr.Is6() != of.six && s.method != "tunnel" {
		r.lose(s.from, s.what, otherFamily)
		return false
	}
	if s.method != "masquerading" && s.port != 0 && s.port != of.port && !of.mark {
		if of.port == 0 {
			r.lose(s.from, s.what, "only masquerading changes the port: the servers get packets to the ports that clients chose")
		} else {
			r.lose(s.from, s.what, "only masquerading changes the port: the servers get packets to port %d", of.port)
		}
		s.port = 0
	}
	if s.lower > s.upper {
		r.lose(s.from, s.what, "the lower threshold of %d is above the upper one of %d, which the kernel refuses: the lower one is left out", s.lower, s.upper)
		s.lower = 0
	}
	return true
}

// sixOf reports whether a service of a mark is of IPv6, if nothing says it: its servers are.
func sixOf(servers []server) bool {
	return len(servers) > 0 && !slices.ContainsFunc(servers, func(s server) bool { return s.addr.Is4() })
}
