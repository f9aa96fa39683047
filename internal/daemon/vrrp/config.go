// SPDX-License-Identifier: Apache-2.0

package vrrp

import (
	"fmt"
	"net/netip"
	"time"
)

// Address is one that moves with the group.
type Address struct {
	Device string
	Prefix netip.Prefix
}

// Router is a virtual router of RFC 9568: an identifier on a device, for one family.
type Router struct {
	Device string
	ID     uint8
	// Source is what its advertisements are sent from: the primary IPv4 address of the
	// device, or its link-local IPv6 address. It decides ties.
	Source netip.Addr
	// Addresses are advertised. The first one of IPv6 has to be link-local (RFC 9568,
	// 5.2.9); keepalived warns if it is not, and so does not the machine.
	Addresses []netip.Prefix
	// Elsewhere are advertised behind them, and configured on other devices.
	Elsewhere []Address
}

// Config is what a group is made of. 0 stands for the default.
type Config struct {
	// Routers move as one. The order has to be the same on all directors: the first one
	// that advertisements of equal priority pass decides ties. At least one.
	Routers []Router
	// Others move with them and are not advertised, as keepalived's
	// virtual_ipaddress_excluded: addresses without a virtual router of their own.
	Others []Address

	// Priority is the effective one, 1 to 255; required. 1 is raised to 2, see remind.
	Priority uint8
	// Interval of advertisements: a multiple of 10 ms, 10 ms to 40.95 s; 1 s.
	Interval time.Duration
	// NoPreempt: a master of a lower priority keeps the addresses. It does not apply to
	// priority 255 (RFC 9568, 6.1), nor to a master whose priority fell below the own one.
	NoPreempt bool
	// PreemptDelay is how long a master of a lower priority is left to be before it is
	// preempted.
	PreemptDelay time.Duration
	// AwaitSync: preempt only while synchronized (SetSynchronized).
	AwaitSync bool
	// Hold is how long a start waits for the first advertisement, and does not preempt.
	Hold time.Duration
	// Merge is how long a master that meets a better one waits for Merged before it
	// yields; 0: it yields at once, as the RFC says. It has to be 0 if another
	// implementation can be the peer.
	Merge time.Duration
	// Pair: there is one other director. If it does not take over after GiveUp, this one is
	// master again soon.
	Pair bool
	// Accept: the host accepts packets to the addresses (RFC 9568, Accept_Mode).
	Accept bool
	// Plain is Advertisement.Plain for sending.
	Plain bool
	// Announcements is how many gratuitous ARP requests or unsolicited neighbour
	// advertisements an announcement has; 5.
	Announcements int
	// AnnounceAgain is the time to the second announcement; 5 s.
	AnnounceAgain time.Duration
	// AnnounceEvery is the interval of further announcements, of one packet for each
	// address, as keepalived's garp_master_refresh; 1 min. They repair what a link that
	// passed messages in one direction has left.
	AnnounceEvery time.Duration
	// Random returns random numbers, for a jitter of less than one step of priority; nil:
	// without jitter.
	Random func() uint64
}

// is4 reports the router's family.
func (r *Router) is4() bool { return r.Source.Is4() }

// complete sets defaults and refuses what is impossible.
func (c *Config) complete() error {
	if c.Interval == 0 {
		c.Interval = time.Second
	}
	if c.Announcements == 0 {
		c.Announcements = 5
	}
	if c.AnnounceAgain == 0 {
		c.AnnounceAgain = 5 * time.Second
	}
	if c.AnnounceEvery == 0 {
		c.AnnounceEvery = time.Minute
	}
	if c.Interval < MinInterval || c.Interval > MaxInterval || c.Interval%centisecond != 0 {
		return fmt.Errorf("an interval of %v: want a multiple of 10 ms, %v to %v", c.Interval, MinInterval, MaxInterval)
	}
	if c.Priority == 0 {
		return fmt.Errorf("a priority of 0: want 1 to 255")
	}
	c.Priority = max(PriorityLowest, c.Priority)
	for _, d := range [...]time.Duration{c.PreemptDelay, c.Hold, c.Merge, c.AnnounceAgain, c.AnnounceEvery} {
		if d < 0 {
			return fmt.Errorf("a time of %v: want at least 0", d)
		}
	}
	if c.Announcements < 0 {
		return fmt.Errorf("%d announcements: want at least 1", c.Announcements)
	}
	if len(c.Routers) == 0 {
		return fmt.Errorf("a group without a virtual router")
	}
	seen := map[routerKey]bool{}
	for i := range c.Routers {
		r := &c.Routers[i]
		if err := r.check(); err != nil {
			return fmt.Errorf("virtual router %d on %q: %w", r.ID, r.Device, err)
		}
		if seen[r.key()] {
			return fmt.Errorf("virtual router %d on %q is there twice", r.ID, r.Device)
		}
		seen[r.key()] = true
	}
	addresses := map[Address]bool{}
	for _, a := range c.addresses() {
		if !a.Prefix.IsValid() || !usable(a.Prefix.Addr()) || a.Device == "" {
			return fmt.Errorf("the address %v on %q", a.Prefix, a.Device)
		}
		if addresses[a] {
			return fmt.Errorf("the address %v on %q is there twice", a.Prefix, a.Device)
		}
		addresses[a] = true
	}
	return nil
}

func (r *Router) check() error {
	if r.ID == 0 {
		return fmt.Errorf("an identifier of 0: want 1 to 255")
	}
	if !usable(r.Source) || r.Source.Is4In6() {
		return fmt.Errorf("it sends from %v", r.Source)
	}
	most := MaxAddresses6
	if r.is4() {
		most = MaxAddresses4
	}
	all := r.all()
	if n := len(all); n == 0 || n > most {
		return fmt.Errorf("%d addresses: want 1 to %d", n, most)
	}
	for _, a := range all {
		if a.Prefix.Addr().Is4() != r.is4() {
			return fmt.Errorf("the address %v is not of the family of %v", a.Prefix, r.Source)
		}
	}
	return nil
}

// all are its addresses, as they are advertised.
func (r *Router) all() (all []Address) {
	for _, a := range r.Addresses {
		all = append(all, Address{r.Device, a})
	}
	return append(all, r.Elsewhere...)
}

// routerKey identifies a router through changes of the configuration.
type routerKey struct {
	device string
	id     uint8
	is4    bool
}

func (r *Router) key() routerKey { return routerKey{r.Device, r.ID, r.is4()} }

// addresses are all that move.
func (c *Config) addresses() (all []Address) {
	for i := range c.Routers {
		all = append(all, c.Routers[i].all()...)
	}
	return append(all, c.Others...)
}

// without are the addresses of a that are not in b.
func without(a, b []Address) (left []Address) {
	set := make(map[Address]bool, len(b)) // there can be thousands
	for _, x := range b {
		set[x] = true
	}
	for _, x := range a {
		if !set[x] {
			left = append(left, x)
		}
	}
	return left
}
