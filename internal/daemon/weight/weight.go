// SPDX-License-Identifier: Apache-2.0

// Package weight composes what the kernel is to have of a server, of all who have a
// say in it: configuration, operator, checks, agent, and the state of the whole
// service. It is the one place where that is done, and pure.
package weight

import (
	"imbang/internal/model"
)

// Input is what is known of one server.
type Input struct {
	Configured  int32        // weight in the configuration
	Weight      *int32       // an operator's, in its place
	Drain       bool         // ordered by an operator or an agent
	Maintenance bool         // likewise
	Down        bool         // a check says so
	Withheld    model.Health // by checks and agents
	Remove      bool         // a server that is down leaves the table
}

// Output is what the kernel is to have.
type Output struct {
	Weight int32 // administrative
	Health model.Health
	Drain  bool
	Absent bool
}

// Available reports whether the server takes part in its service's quorum.
func (in Input) Available() bool {
	return !in.Down && !in.Drain && !in.Maintenance && in.Withheld < model.Down && in.administrative() > 0
}

func (in Input) administrative() int32 {
	if in.Weight != nil {
		return *in.Weight
	}
	return in.Configured
}

// Policy is what becomes of a service whose servers are not available.
type Policy uint8

// Policies.
const (
	Refuse   Policy = iota // as each server says
	KeepLast               // the server that went down last is used as if it were up
	UseAll                 // all servers are
)

// Service composes the servers of a service. last is the index of the server that went
// down last, of those that are not out of service; -1: there is none. Without quorum, a sorry server takes all clients: others get none.
func Service(servers []Input, policy Policy, last int, sorry bool) []Output {
	available := 0
	for _, in := range servers {
		if in.Available() {
			available++
		}
	}
	out := make([]Output, len(servers))
	for i, in := range servers {
		if available == 0 && (policy == UseAll || policy == KeepLast && i == last) {
			in.Down, in.Withheld = false, model.Up
		}
		out[i] = in.compose()
		if sorry {
			out[i].Health = model.Down
		}
	}
	return out
}

func (in Input) compose() Output {
	out := Output{Weight: in.administrative(), Drain: in.Drain || in.Maintenance, Health: in.Withheld}
	if in.Down && !in.Maintenance {
		out.Health, out.Absent = model.Down, in.Remove
	}
	return out
}

// Quorum is whether a service is up: the sum of the available servers' effective weights has to
// reach the quorum plus the hysteresis to bring it up, and to fall below the quorum less
// the hysteresis to take it down, as in keepalived.
func Quorum(servers []Input, quorum, hysteresis int, was bool) bool {
	var sum int64
	for _, in := range servers {
		if in.Available() {
			sum += int64(model.Effective(in.administrative(), in.Withheld, false))
		}
	}
	if was {
		return sum >= int64(quorum-hysteresis)
	}
	return sum >= int64(quorum+hysteresis)
}
