// SPDX-License-Identifier: Apache-2.0

package process

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"imbang/internal/daemon/check"
	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/host"
)

// consider finds out what the machine's configuration is now.
func (g *group) consider() {
	for i := range g.setup.Routers {
		if source := g.source(&g.setup.Routers[i]); source.IsValid() {
			g.sources[i] = source
		}
	}
	g.effective = g.findPriority()
	g.config = g.setup.Machine(g.effective, g.sources)
}

// source is the address that a router sends from; invalid: the device has none.
func (g *group) source(r *setup.Router) (found netip.Addr) {
	d := g.devices[r.Device]
	if d == nil {
		return found
	}
	moving := g.setup.AllAddresses()
	linkLocal := r.IPv6() && (len(r.Peers) == 0 || r.Peers[0].IsLinkLocalUnicast())
	for _, a := range d.Addresses {
		address := a.Prefix.Addr()
		switch {
		case address.Is6() != r.IPv6() || a.Unusable || a.Protocol == host.Mark:
		case r.Source.IsValid():
			if address == r.Source {
				return address
			}
		case r.IPv6() && address.IsLinkLocalUnicast() != linkLocal:
		case slices.ContainsFunc(moving, func(m vrrp.Address) bool { return m.Device == r.Device && m.Prefix.Addr() == address }):
			if !found.IsValid() { // the owner of the address may have no other one
				found = address
			}
		default:
			return address
		}
	}
	return found
}

// changed is another configuration of the same group.
func (g *group) changed(s *setup.Group) {
	sources := make([]netip.Addr, len(s.Routers))
	for i, r := range s.Routers {
		for j, o := range g.setup.Routers {
			if r.Device == o.Device && r.ID == o.ID && r.IPv6() == o.IPv6() {
				sources[i] = g.sources[j]
			}
		}
	}
	g.setup, g.sources, g.heard = *s, sources, make([]netip.Addr, len(s.Routers))
	clear(g.sending)
	clear(g.probes)
}

// reconfigure gives the machine its configuration as it is now.
func (g *group) reconfigure(t time.Duration) {
	g.consider()
	var err error
	g.call(func(m *vrrp.Machine, out *vrrp.Output) { err = m.Reconfigure(t, g.config, out) })
	if err != nil {
		g.Log.Error("the group keeps its earlier configuration", "group", g.setup.Name, "error", err) // the parser has tried it
	}
}

// reload likewise, for a configuration that was changed. Addresses that this adds, and that the
// kernel does not, are no reason to leave: the group has its others.
func (g *group) reload(t time.Duration) {
	since := g.pendingSince
	g.reconfigure(t)
	g.pendingSince = since
}

// review tells the machine of what has changed around it.
func (g *group) review(t time.Duration) {
	if g.machine.State() == vrrp.Initialize { // stopped
		return
	}
	before, priority := g.config, g.effective
	g.consider()
	if !reflect.DeepEqual(before.Routers, g.config.Routers) {
		g.reconfigure(t)
	} else if g.effective != priority {
		g.call(func(m *vrrp.Machine, out *vrrp.Output) { m.SetPriority(t, g.effective, out) })
	}
	faults := g.findFaults()
	// A machine that was handed over may be in a fault whose reasons are not known here.
	known, faulty := slices.Equal(faults, g.faults), g.machine.State() == vrrp.Fault
	if known && faulty == (len(faults) > 0) {
		return
	}
	g.faults = faults
	if len(faults) > 0 && !known {
		g.Log.Warn("fault", "group", g.setup.Name, "reasons", strings.Join(faults, "; "))
	}
	g.call(func(m *vrrp.Machine, out *vrrp.Output) { m.SetFault(t, len(faults) > 0, out) })
}

// findFaults are the reasons why the group cannot work.
func (g *group) findFaults() (all []string) {
	// What is not known yet is no reason to leave.
	running := g.machine.State() == vrrp.Backup || g.machine.State() == vrrp.Master
	add := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	for _, name := range g.setup.Needed() {
		switch d := g.devices[name]; {
		case d == nil:
			add("there is no device %s", name)
		case !d.Up:
			add("device %s is down", name)
		}
	}
	for i := range g.setup.Routers {
		r := &g.setup.Routers[i]
		if d := g.devices[r.Device]; d == nil || !d.Up {
			continue
		}
		if !g.source(r).IsValid() {
			add("%s", noSource(r))
		}
		if s := g.sockets[spot{r.Device, r.IPv6()}]; s != nil && s.err != nil {
			add("%v", s.err)
		} else if s != nil && s.joining && !running {
			add("device %s: the multicast group is not joined yet", r.Device)
		}
	}
	for _, name := range g.setup.Scripts {
		s, state := g.tracker.state(name)
		if s.Weight != 0 {
			continue
		}
		switch g.tracker.verdict(name) {
		case check.Unknown:
			if !running {
				why := ""
				if text := g.tracker.unmadeFor(name); text != "" {
					why = ": " + text
				}
				add("script %s has no result yet%s", name, why)
			}
		case check.Down:
			add("script %s: %s", name, cmp.Or(state.Last.Detail, "it failed before it was changed"))
		}
	}
	for _, reason := range g.detached() {
		add("%s", reason)
	}
	if g.failed != "" {
		add("%s", g.failed)
	}
	if g.overdue {
		add("the kernel has not added the addresses within %s: another program may hold its RTNL lock", g.overdueAfter())
	}
	return all
}

// noSource says what a device lacks.
func noSource(r *setup.Router) string {
	switch {
	case r.Source.IsValid():
		return fmt.Sprintf("device %s does not have the source %s", r.Device, r.Source)
	case !r.IPv6():
		return fmt.Sprintf("device %s has no IPv4 address to send from", r.Device)
	}
	return fmt.Sprintf("device %s has no usable link-local IPv6 address to send from", r.Device)
}

// findPriority is the effective priority.
func (g *group) findPriority() uint8 {
	var weights []int
	if g.facts.Yield || g.lacksDirector() { // whatever else is tracked
		return setup.Effective(g.setup.Priority, -vrrp.PriorityOwner)
	}
	for _, d := range g.setup.Devices {
		device := g.devices[d.Name]
		add, _ := setup.Share(d.Weight, device != nil && device.Up)
		weights = append(weights, add)
	}
	for _, name := range g.setup.Scripts {
		s, _ := g.tracker.state(name)
		if verdict := g.tracker.verdict(name); verdict != check.Unknown {
			add, _ := setup.Share(s.Weight, verdict == check.Up)
			weights = append(weights, add)
		}
	}
	return setup.Effective(g.setup.Priority, weights...)
}
