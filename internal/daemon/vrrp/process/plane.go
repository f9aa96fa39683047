// SPDX-License-Identifier: Apache-2.0

package process

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
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
	// Peers are the hardware addresses of directors that are servers of this one: what they
	// sent is not scheduled again.
	Peers(all []PeerAddress) error
	// Release ends the use of it.
	Release() error
	// Stale reports whether there is another director now, or none.
	Stale() bool
	// Attached are the indices of the director's devices.
	Attached() ([]int, error)
	Close() error
}

// PeerAddress is a hardware address on the link of a device.
type PeerAddress struct {
	Index int
	MAC   net.HardwareAddr
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
	errs    map[planeError]string
	// attached are the last two reports of the director's devices: one that is between being
	// loaded and being attached is no fault.
	attached [][]int
	macs     map[neighbour]net.HardwareAddr
	sought   []neighbour   // whose hardware addresses are looked for
	peers    []PeerAddress // as written
	// absent is how many looks in a row, at most absentLooks, have found no director.
	absent int
	// lookedAt is when the last look was that counted: others, for neighbours, may follow at once.
	lookedAt time.Duration
}

// absentLooks is how many looks without a director mean that there is none: one that is
// replaced can be between two.
const absentLooks = 2

// planeError is what an error is of. Each is known until the same succeeds: another success
// does not hide it.
type planeError struct{ use, group string }

// Uses of the data plane.
const (
	useDirector  = "director"  // it is opened, and its devices are read
	useAddresses = "addresses" // they are guarded
	useLease     = "lease"
	useGrace     = "grace period"
	useHand      = "hand-over"
	usePeers     = "other directors that are servers"
)

// noted logs the first of equal errors of a use.
func (l *loop) noted(of planeError, err error) {
	if err == nil {
		delete(l.errs, of)
		return
	}
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if text == l.errs[of] {
		return
	}
	attrs := []any{"use", of.use, "error", text}
	if of.group != "" {
		attrs = append(attrs, "group", of.group)
	}
	l.Log.Warn("the director's data plane cannot be used for the addresses", attrs...)
	l.errs[of] = text
}

// planeErrors are all errors.
func (l *loop) planeErrors() string {
	var all []string
	for of, text := range l.errs {
		if of.group != "" {
			of.use += " of group " + of.group
		}
		all = append(all, of.use+": "+text)
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// setPlane changes to another director, or to none.
func (l *loop) setPlane(p Plane) {
	l.plane, l.attached, l.peers = p, nil, nil
	maps.DeleteFunc(l.errs, func(of planeError, _ string) bool { return of.use != useDirector })
	if p != nil && len(l.groups) > 0 { // a handover's groups are still guarded
		l.guard()
	}
}

// noteAbsent notes whether a look has found a director. At the start of the process one look
// is enough: a host whose director cannot be loaded must not preempt one that works.
func (l *loop) noteAbsent(absent, counts bool) {
	before := l.lacksDirector()
	switch {
	case !absent:
		l.absent = 0
	case counts:
		l.absent = min(l.absent+1, absentLooks)
	}
	if l.lacksDirector() == before || !l.started {
		return
	}
	if !before {
		l.Log.Warn("no director is loaded: groups have the lowest priority (systemctl status imbang)")
	}
	l.reviewAll(now())
}

// lacksDirector reports whether a director is required, and none is loaded.
func (l *loop) lacksDirector() bool {
	return l.OpenPlane != nil && l.setup != nil && l.setup.Director != nil && l.absent == absentLooks
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
	l.noted(planeError{use: useAddresses}, l.plane.Guard(groups))
	for _, g := range l.groups {
		if slot, has := l.slots[g.setup.Name]; has {
			l.noted(planeError{useLease, g.setup.Name}, l.plane.Renew(slot, g.lease))
		}
	}
	maps.DeleteFunc(l.errs, func(of planeError, _ string) bool { // of groups that are gone
		return of.group != "" && !slices.ContainsFunc(l.groups, func(g *group) bool { return g.setup.Name == of.group })
	})
}

// renew renews or ends the lease of a group.
func (g *group) renew(until time.Duration) {
	g.lease = until
	if slot, has := g.slots[g.setup.Name]; has && g.plane != nil {
		g.noted(planeError{useLease, g.setup.Name}, g.plane.Renew(slot, until))
	}
}

// unguard ends the use of the data plane: all groups have left.
func (l *loop) unguard() {
	if l.plane != nil {
		l.noted(planeError{use: useAddresses}, l.plane.Release())
	}
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
