// SPDX-License-Identifier: Apache-2.0

// Package setup is what the user wants of VRRP, as plain values: groups of addresses that
// move between directors, and what they depend on. Package config reads it from imbang.yaml,
// package process does it.
package setup

import (
	"net/netip"
	"slices"
	"time"

	"imbang/internal/daemon/vrrp"
)

// Setup is all of it.
type Setup struct {
	Scripts []Script // by name
	Groups  []Group
	// Grace is for how long after a takeover the director neither passes packets of unknown
	// connections to the stack, nor has it reset them; and for how long it hands them to
	// another director that is alive. 0: not at all.
	Grace time.Duration
	// Servers are the addresses of all real servers, each once, in ascending order: another director
	// can be one of them. See IsServer.
	Servers []netip.Addr
	// Peers are directors that have this one as a server, whether or not they are heard. Own addresses
	// may be among them.
	Peers []netip.Addr
	// Director is how the director is tracked; nil: it is not.
	Director *Director
}

// IsServer reports whether an address is that of a real server. There can be a hundred thousand.
func (s *Setup) IsServer(a netip.Addr) bool {
	_, is := slices.BinarySearchFunc(s.Servers, a, netip.Addr.Compare)
	return is
}

// Director is what groups require of the director's programs. Without a director they have
// the lowest priority.
type Director struct {
	// Devices are those that the programs have to be attached to; none: any.
	Devices []string
}

// Group is what moves as one.
type Group struct {
	Name         string
	Priority     uint8 // the base; what is tracked changes it
	Interval     time.Duration
	NoPreempt    bool
	PreemptDelay time.Duration
	Hold         time.Duration
	AwaitSync    bool          // vrrp.Config.AwaitSync
	Merge        time.Duration // vrrp.Config.Merge
	// Pair: there is one other director. It takes over at once when the master resigns:
	// no third one could do the same.
	Pair          bool
	PlainChecksum bool // vrrp.Config.Plain
	Announcements int
	AnnounceAgain time.Duration
	AnnounceEvery time.Duration
	Routers       []Router
	Addresses     []vrrp.Address // not advertised
	Devices       []Device       // tracked, in addition to those of the addresses
	Scripts       []string       // tracked
	// Notify gets keepalived's arguments; those for a state get none.
	Notify       []string
	NotifyStates map[vrrp.State][]string
}

// Router is a virtual router.
type Router struct {
	Device    string
	ID        uint8
	Source    netip.Addr   // invalid: what the device has
	Peers     []netip.Addr // by unicast; none: by multicast
	Addresses []netip.Prefix
	Elsewhere []vrrp.Address // advertised, too, and configured on other devices
}

// All are its addresses with their devices, as they are advertised.
func (r *Router) All() (all []vrrp.Address) {
	for _, p := range r.Addresses {
		all = append(all, vrrp.Address{Device: r.Device, Prefix: p})
	}
	return append(all, r.Elsewhere...)
}

// IPv6 reports the family.
func (r *Router) IPv6() bool {
	if len(r.Addresses) > 0 {
		return r.Addresses[0].Addr().Is6()
	}
	return r.Elsewhere[0].Prefix.Addr().Is6()
}

// Device is one that is tracked. With a weight of 0 the group is in fault while the device is
// down; one above 0 is added to the priority while it is up, one below 0 while it is down.
type Device struct {
	Name   string
	Weight int
}

// Script is run again and again. The weight is as that of a device.
type Script struct {
	Name     string
	Command  []string
	User     string
	Interval time.Duration
	Timeout  time.Duration
	Rise     int // successes in a row that end a failure
	Fall     int // failures in a row that begin one
	Weight   int
}

// Equal reports whether two scripts are the same.
func (s *Script) Equal(o *Script) bool {
	return s.Name == o.Name && slices.Equal(s.Command, o.Command) && s.User == o.User && s.Interval == o.Interval &&
		s.Timeout == o.Timeout && s.Rise == o.Rise && s.Fall == o.Fall && s.Weight == o.Weight
}

// Sources of routers whose device has no address to send from (yet). A group is in fault
// then, so nothing is sent from these; they are for documentation (RFC 5737, RFC 3849).
var (
	noSource4 = netip.MustParseAddr("192.0.2.0")
	noSource6 = netip.MustParseAddr("2001:db8::")
)

// Machine is the configuration of the group's machine. The sources are those of the routers,
// an invalid one is unknown.
func (g *Group) Machine(priority uint8, sources []netip.Addr) vrrp.Config {
	c := vrrp.Config{
		Others: g.Addresses, Priority: priority, Interval: g.Interval, NoPreempt: g.NoPreempt, PreemptDelay: g.PreemptDelay, Hold: g.Hold,
		AwaitSync: g.AwaitSync, Merge: g.Merge, Pair: g.Pair,
		Accept: true, Plain: g.PlainChecksum, Announcements: g.Announcements, AnnounceAgain: g.AnnounceAgain, AnnounceEvery: g.AnnounceEvery,
	}
	for i := range g.Routers {
		r := &g.Routers[i]
		source := sources[i]
		if !source.IsValid() {
			source = noSource4
			if r.IPv6() {
				source = noSource6
			}
		}
		c.Routers = append(c.Routers, vrrp.Router{Device: r.Device, ID: r.ID, Source: source, Addresses: r.Addresses, Elsewhere: r.Elsewhere})
	}
	return c
}

// AllAddresses are the addresses that move, by device.
func (g *Group) AllAddresses() []vrrp.Address {
	var all []vrrp.Address
	for i := range g.Routers {
		all = append(all, g.Routers[i].All()...)
	}
	return append(all, g.Addresses...)
}

// Needed are the devices without which the group cannot work: those of its routers and of its
// addresses, and those that are tracked with a weight of 0.
func (g *Group) Needed() (names []string) {
	for i := range g.Routers {
		names = append(names, g.Routers[i].Device)
	}
	for _, a := range g.AllAddresses() {
		names = append(names, a.Device)
	}
	for _, d := range g.Devices {
		if d.Weight == 0 {
			names = append(names, d.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Effective is a base priority with the weights of what is tracked. That of an address's
// owner stays (RFC 9568, 5.2.4), others are 1 to 254.
func Effective(base uint8, weights ...int) uint8 {
	if base == vrrp.PriorityOwner {
		return base
	}
	sum := int(base)
	for _, w := range weights {
		sum += w
	}
	return uint8(min(max(sum, 1), vrrp.PriorityOwner-1))
}

// Share is what a tracked thing adds to the priority, and whether it is a fault.
func Share(weight int, up bool) (add int, fault bool) {
	switch {
	case weight == 0:
		return 0, !up
	case weight > 0 == up:
		return weight, false
	}
	return 0, false
}
