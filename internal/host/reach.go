// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Reach is how the calling thread's network namespace gets to an address.
type Reach struct {
	Route     RouteType
	Device    string // of a unicast route, as all that follows
	Router    bool   // the next hop is a router
	Neighbour Neighbour
}

// RouteType is the type of a route (rtnetlink(7)).
type RouteType uint8

// Types of routes. A throw route is no route.
const (
	NoRoute          RouteType = unix.RTN_UNSPEC
	UnicastRoute     RouteType = unix.RTN_UNICAST
	LocalRoute       RouteType = unix.RTN_LOCAL // the address is the namespace's own
	BlackholeRoute   RouteType = unix.RTN_BLACKHOLE
	UnreachableRoute RouteType = unix.RTN_UNREACHABLE
	ProhibitRoute    RouteType = unix.RTN_PROHIBIT
)

// String is the type's name in ip-route(8).
func (t RouteType) String() string {
	names := []string{"none", "unicast", "local", "broadcast", "anycast", "multicast", "blackhole", "unreachable", "prohibit"}
	if int(t) < len(names) {
		return names[t]
	}
	return strconv.Itoa(int(t))
}

// refused is the type of the route, or of the rule (ip-rule(8)), for which the kernel answers a route
// look-up with an error (fib_props in Linux). Any other error is of the look-up itself.
func refused(err error) (t RouteType, is bool) {
	var number unix.Errno
	errors.As(err, &number)
	switch number {
	case unix.ENETUNREACH:
		return NoRoute, true
	case unix.EHOSTUNREACH:
		return UnreachableRoute, true
	case unix.EINVAL:
		return BlackholeRoute, true
	case unix.EACCES:
		return ProhibitRoute, true
	}
	return NoRoute, false
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
	if t, is := refused(err); is || err == nil && len(routes) == 0 {
		return Reach{Route: t}, nil
	}
	if err != nil {
		return Reach{}, fmt.Errorf("route to %s: %w", addr, err)
	}
	route := routes[0]
	r := Reach{Route: RouteType(route.Type)}
	if r.Route != UnicastRoute {
		return r, nil
	}
	r.Router = route.Gw != nil
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
