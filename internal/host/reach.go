// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Reach is how the calling thread's network namespace gets to an address.
type Reach struct {
	Route     bool   // there is one
	Local     bool   // the address is the namespace's own
	Device    string // by which it goes
	Router    bool   // the next hop is a router
	Neighbour Neighbour
}

// Neighbour is what the kernel knows of a next hop's hardware address.
type Neighbour int

const (
	NeighbourUnknown Neighbour = iota // nobody asked yet
	NeighbourKnown
	NeighbourSilent // it was asked and did not answer
)

// ReachOf asks the routing and neighbour tables; nothing is sent.
func ReachOf(addr netip.Addr) (Reach, error) {
	routes, err := netlink.RouteGet(addr.AsSlice())
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) || (err == nil && len(routes) == 0) {
		return Reach{}, nil
	}
	if err != nil {
		return Reach{}, fmt.Errorf("route to %s: %w", addr, err)
	}
	route := routes[0]
	r := Reach{Route: route.Type != unix.RTN_UNREACHABLE && route.Type != unix.RTN_BLACKHOLE && route.Type != unix.RTN_PROHIBIT,
		Local: route.Type == unix.RTN_LOCAL, Router: route.Gw != nil}
	if link, err := netlink.LinkByIndex(route.LinkIndex); err == nil {
		r.Device = link.Attrs().Name
	}
	next := addr
	if gw, ok := netip.AddrFromSlice(route.Gw); ok {
		next = gw.Unmap()
	}
	r.Neighbour, err = neighbour(route.LinkIndex, next)
	return r, err
}

func neighbour(device int, addr netip.Addr) (Neighbour, error) {
	family := netlink.FAMILY_V4
	if addr.Is6() {
		family = netlink.FAMILY_V6
	}
	all, err := untilWhole(func() ([]netlink.Neigh, error) { return netlink.NeighList(device, family) })
	if err != nil {
		return NeighbourUnknown, fmt.Errorf("neighbour %s: %w", addr, err)
	}
	for _, n := range all {
		if a, ok := netip.AddrFromSlice(n.IP); !ok || a.Unmap() != addr {
			continue
		}
		switch n.State {
		case netlink.NUD_FAILED:
			return NeighbourSilent, nil
		case netlink.NUD_NONE, netlink.NUD_INCOMPLETE:
			return NeighbourUnknown, nil
		}
		return NeighbourKnown, nil
	}
	return NeighbourUnknown, nil
}
