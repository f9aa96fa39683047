// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"

	"imbang/internal/model"
)

// Follow lists the changes between two states of one service that the daemon made
// itself: health, weight and presence of servers. What others changed in the table
// meanwhile is not looked at, so it holds.
func Follow(was, is Service) (changes []Change) {
	before := map[netip.AddrPort]Server{}
	for _, s := range was.Servers {
		before[s.AddrPort()] = s
	}
	for _, s := range is.Servers {
		old, known := before[s.AddrPort()]
		c := Change{Service: is.Service, Server: s.Server, Health: s.Health, Drain: s.Drain, Until: s.Until, SlowStart: s.SlowStart}
		switch {
		case !known:
		case old.Absent && !s.Absent:
			c.Kind = AddServer
			changes = append(changes, c)
		case s.Absent && !old.Absent:
			c.Kind = DeleteServer
			changes = append(changes, c)
		case !s.Absent:
			changes = append(changes, values(c, old, s)...)
		}
	}
	Sort(changes)
	return changes
}

// values are the changes of a server that stays.
func values(c Change, old, s Server) (changes []Change) {
	weighed := old.Server
	weighed.Weight = s.Weight
	switch {
	case old.Server == s.Server:
	case weighed == s.Server:
		c.Kind, c.Was, c.Is = SetWeight, fmt.Sprint(old.Weight), fmt.Sprint(s.Weight)
		changes = append(changes, c)
	default: // a server that is the sorry server, too
		c.Kind = EditServer
		c.Was, c.Is = serverDifference(old.Server, s.Server)
		changes = append(changes, c)
	}
	if old.SlowStart != s.SlowStart {
		c.Kind, c.Was, c.Is = SetSlowStart, old.SlowStart.String(), s.SlowStart.String()
		changes = append(changes, c)
	}
	if old.Health != s.Health {
		c.Kind, c.Was, c.Is = SetHealth, old.Health.String(), s.Health.String()
		changes = append(changes, c)
	}
	if old.Drain != s.Drain || s.Drain && !old.Until.Equal(s.Until) {
		c.Kind = SetDrain
		changes = append(changes, c)
	}
	return changes
}

// Assert lists the changes that give the servers that are in the table the health that
// is wanted, and have them drain or not: that is the daemon's, whatever else others edit.
func Assert(wanted Table, observed []model.ServiceStatus) (changes []Change) {
	for i := range observed {
		s := find(wanted, observed[i].Key)
		if s == nil {
			continue
		}
		there := serversOf(&observed[i])
		for _, one := range s.Servers {
			have := there[one.AddrPort()]
			if have == nil {
				continue
			}
			if have.Health != one.Health {
				changes = append(changes, Change{
					Kind: SetHealth, Service: s.Service, Server: one.Server, Health: one.Health, Was: have.Health.String(), Is: one.Health.String(),
				})
			}
			if have.Draining != one.Drain {
				changes = append(changes, Change{Kind: SetDrain, Service: s.Service, Server: one.Server, Drain: one.Drain, Until: one.Until})
			}
		}
	}
	return changes
}
