// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"slices"
	"time"

	"imbang/internal/daemon/operator"
	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
)

// enterDue enters services whose first quorum_up is to run.
func (d *Daemon) enterDue(all []operator.ServiceID) {
	for _, id := range all {
		d.due[id] = true
	}
}

// runDue runs quorum_up of services that had their quorum when the daemon first had them. While the
// virtual address is on another director, it waits.
func (d *Daemon) runDue(now time.Time) {
	for id := range d.due {
		h, up := d.core.QuorumUp(id, now)
		if up && !d.holds(id) {
			continue
		}
		delete(d.due, id)
		d.unsaved = true
		if up {
			d.hooks.Add(h.Command, h.Event)
		}
	}
}

// holds reports whether the virtual address of a service is here, as far as imbang vrrp moves it. A
// firewall mark can be of any of the addresses.
func (d *Daemon) holds(id operator.ServiceID) bool {
	moving := d.core.Config.VRRP
	if moving == nil {
		return true
	}
	states, moves := d.failover.states(), false
	for i := range moving.Groups {
		g := &moving.Groups[i]
		if id.Key.Mark == 0 && !hasAddress(g, id) {
			continue
		}
		if states[g.Name] == "master" {
			return true
		}
		moves = true
	}
	return !moves
}

func hasAddress(g *setup.Group, id operator.ServiceID) bool {
	all := g.Addresses
	for i := range g.Routers {
		all = append(slices.Clip(all), g.Routers[i].All()...)
	}
	return slices.ContainsFunc(all, func(a vrrp.Address) bool { return a.Prefix.Addr() == id.Key.Addr })
}
