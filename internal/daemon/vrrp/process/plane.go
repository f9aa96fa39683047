// SPDX-License-Identifier: Apache-2.0

package process

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"imbang/internal/daemon/vrrp"
)

// Plane is what is used of the data plane of a director. Only Stale and Attached may wait;
// they and Close are called by another goroutine than the rest.
type Plane interface {
	// Guard has the kernel answer for addresses only while the lease of their group, by
	// number, is fresh.
	Guard(groups map[netip.Addr]uint32) error
	// Renew has a group's lease end at a time of CLOCK_BOOTTIME; 0 ends it.
	Renew(group uint32, until time.Duration) error
	// Grace has packets of unknown connections dropped until a time.
	Grace(until time.Duration) error
	// Hand has those that came in by a device sent to a hardware address on it until a time,
	// in place of being dropped.
	Hand(index int, to net.HardwareAddr, until time.Duration) error
	// Release ends the use of it.
	Release() error
	// Stale reports whether there is another director now, or none.
	Stale() bool
	// Attached are the indices of the director's devices.
	Attached() ([]int, error)
	Close() error
}

// planeGroups is how many groups can have a lease: director.AddressGroups.
const planeGroups = 64

// planeUse is the loop's use of the data plane. Without a director, or if it refuses
// something, VRRP goes on: a lease is a protection, not a condition.
type planeUse struct {
	plane Plane             // nil: no director is loaded
	slots map[string]uint32 // of groups: the numbers of their leases
	// guarded are those that the plane guards, with the numbers (guards.go).
	guarded map[netip.Addr]uint32
	err     string // why something was refused last
	// attached are the last two reports of the director's devices: one that is between being
	// loaded and being attached is no fault.
	attached [][]int
	macs     map[neighbour]net.HardwareAddr
}

// noted logs the first of equal errors.
func (l *loop) noted(err error) {
	text := ""
	if err != nil {
		text = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	if text != "" && text != l.planeUse.err {
		l.Log.Warn("the director's data plane cannot be used for the addresses", "error", text)
	}
	l.planeUse.err = text
}

// setPlane changes to another director, or to none.
func (l *loop) setPlane(p Plane) {
	l.plane, l.attached = p, nil
	if p != nil && len(l.groups) > 0 { // a handover's groups are still guarded
		l.guard()
	}
}

// guard guards the addresses of the groups. Leases are written behind that: a number that had
// no addresses begins without one, and may have been that of a group that is gone.
func (l *loop) guard() {
	if l.plane == nil {
		return
	}
	old := l.slots
	l.slots = map[string]uint32{}
	used := map[uint32]bool{}
	for _, g := range l.groups {
		if slot, has := old[g.setup.Name]; has {
			l.slots[g.setup.Name], used[slot] = slot, true
		}
	}
	left := l.leaving()
	for _, slot := range left {
		used[slot] = true
	}
	next := uint32(0)
	for _, g := range l.groups {
		if _, has := l.slots[g.setup.Name]; has {
			continue
		}
		for used[next] {
			next++
		}
		if next >= planeGroups {
			l.Log.Warn("there are more groups than leases: the kernel also answers for this group's addresses when imbang vrrp was killed", "group", g.setup.Name, "leases", planeGroups)
			continue
		}
		l.slots[g.setup.Name], used[next] = next, true
	}
	groups, shared := map[netip.Addr]uint32{}, map[netip.Addr]bool{}
	for _, g := range l.groups {
		slot, has := l.slots[g.setup.Name]
		if !has {
			continue
		}
		for _, a := range g.setup.AllAddresses() {
			addr := a.Prefix.Addr()
			if other, is := groups[addr]; is && other != slot {
				shared[addr] = true // link-local, on two devices: no single lease is right
			}
			groups[addr] = slot
		}
	}
	for addr := range shared {
		delete(groups, addr)
	}
	l.keepGuards(groups, left)
	err := l.plane.Guard(groups)
	for _, g := range l.groups {
		if slot, has := l.slots[g.setup.Name]; has {
			err = cmp.Or(err, l.plane.Renew(slot, g.lease))
		}
	}
	l.noted(err)
}

// renew renews or ends the lease of a group.
func (g *group) renew(until time.Duration) {
	g.lease = until
	if slot, has := g.slots[g.setup.Name]; has && g.plane != nil {
		g.noted(g.plane.Renew(slot, until))
	}
}

// unguard ends the use of the data plane: all groups have left.
func (l *loop) unguard() {
	if l.plane != nil {
		l.noted(l.plane.Release())
	}
}

// takeOver prepares the data plane for a takeover, before addresses are announced. Packets
// of connections that are not known (yet) are not passed to the stack for a while. If the
// former master is alive, because it resigned or was preempted, it gets them.
func (g *group) takeOver(cause vrrp.Cause) {
	if g.plane == nil || g.loop.setup.Grace == 0 {
		return
	}
	period := g.loop.setup.Grace
	t := now()
	alive := cause == vrrp.CauseResigned || cause == vrrp.CauseTake || g.heardAt != 0 && t-g.heardAt < 2*g.heardInterval
	if alive {
		g.hand(t + period)
	}
	g.noted(g.plane.Grace(t + period))
}

// detached are the devices that the director should be attached to and is not.
func (g *group) detached() (reasons []string) {
	if g.plane == nil || len(g.attached) < 2 || g.loop.setup.Director == nil {
		return nil
	}
	wanted := g.loop.setup.Director
	if len(wanted.Devices) == 0 && len(g.attached[0])+len(g.attached[1]) == 0 {
		return []string{"the director that is loaded is attached to no device (imbang attach)"}
	}
	needed := g.setup.Needed()
	for _, name := range wanted.Devices {
		d := g.devices[name]
		if d == nil || !slices.Contains(needed, name) || slices.Contains(g.attached[0], d.Index) || slices.Contains(g.attached[1], d.Index) {
			continue
		}
		reasons = append(reasons, "the director's programs are not attached to device "+name+" (imbang reload, or systemctl restart imbang, attaches them)")
	}
	return reasons
}

// hand has the former master get packets of connections that are not known here.
func (g *group) hand(until time.Duration) {
	for i := range g.setup.Routers {
		d := g.devices[g.setup.Routers[i].Device]
		if d == nil {
			continue
		}
		if mac := g.macs[neighbour{d.Index, g.heard[i]}]; len(mac) == 6 && !slices.Equal(mac, d.MAC) {
			g.noted(g.plane.Hand(d.Index, mac, until))
		}
	}
}
