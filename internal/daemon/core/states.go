// SPDX-License-Identifier: Apache-2.0

package core

import (
	"time"

	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/operator"
	"imbang/internal/daemon/weight"
	"imbang/internal/model"
)

// States are what the servers of layer 7 are to be now, all of them.
func (c *Core) States(now time.Time) l7.States {
	states := l7.States{}
	for _, s := range c.services[len(c.virtual()):] {
		for i, o := range weight.Service(c.inputs(s), policies[s.AllDown], -1, false) {
			one := s.servers[i]
			state := l7.State{Weight: int(min(model.Effective(o.Weight, o.Health, false), maxWeight))}
			switch order := c.Book[one.id].Drain; {
			case o.Drain && order != nil && !order.Deadline.IsZero() && !now.Before(order.Deadline):
				state.Health = l7.Down // what is left of its connections ends
			case o.Drain:
				state.Health = l7.Drain
			case o.Health >= model.Down:
				state.Health = l7.Down
			}
			if state.Health == l7.Down {
				// With its weight it comes up: 0 would be another change then.
				state.Weight = int(min(max(o.Weight, 0), maxWeight))
			}
			states[l7.ServerID{Backend: s.Backend, Server: one.Name}] = state
		}
	}
	return states
}

// maxWeight is HAProxy's. An operator may have ordered more, for a virtual service of the same
// server.
const maxWeight = 256

// DrainDeadline is how long the connections of a server may go on once it is drained; 0: for ever.
func (c *Core) DrainDeadline(id operator.ServerID) time.Duration {
	if one := c.servers[id]; one != nil {
		return one.service.DrainDeadline
	}
	return 0
}
