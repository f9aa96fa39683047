// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// AddAddresses gives a device addresses with their prefix lengths. IPv6 ones
// are usable at once: duplicate address detection has nothing to find on links
// that we made, and costs a second.
func (n *Namespace) AddAddresses(dev string, addrs ...netip.Prefix) error {
	link, err := n.link(dev)
	if err != nil {
		return err
	}
	for _, p := range addrs {
		a := &netlink.Addr{IPNet: ipNet(p)}
		if p.Addr().Is6() {
			a.Flags = unix.IFA_F_NODAD
		}
		if err := n.handle.AddrAdd(link, a); err != nil {
			return n.wrap(dev, fmt.Errorf("add address %s: %w", p, needRoot(err)))
		}
	}
	if link.Attrs().RawFlags&unix.IFF_RUNNING == 0 {
		return nil // the kernel adds routes of IPv6 when there is a carrier
	}
	err = n.Do(func() error {
		const limit = 10 * time.Second
		deadline := time.Now().Add(limit)
		for _, p := range addrs {
			if p.Addr().IsLinkLocalUnicast() {
				continue
			}
			if is, err := untilLocal(p.Addr(), deadline, IsOwn); err != nil {
				return err
			} else if !is {
				return fmt.Errorf("address %s is no local one after %s", p.Addr(), limit)
			}
		}
		return nil
	})
	if err != nil {
		return n.wrap(dev, err)
	}
	return nil
}

// Route is one entry of the main table, or of the local table when Local is
// set.
type Route struct {
	Dst netip.Prefix // 0.0.0.0/0 or ::/0 for a default route
	Via netip.Addr   // next hop; invalid for a destination on the link
	Dev string       // may be empty when Via says enough
	// Local makes every address of Dst belong to the host, as `ip route add
	// local DST dev lo`: one entry instead of thousands of addresses. Such
	// an address can be bound like any other, without ip_nonlocal_bind.
	Local bool
	// NotLocal makes an exception of it: Dst is reached through Dev.
	NotLocal bool
	// MTU is for packets of this route [bytes]; 0: the device's. A locked one is not
	// changed by ICMP errors (ip-route(8), mtu lock).
	MTU       int
	MTULocked bool
}

// AddRoutes adds routes, in order.
func (n *Namespace) AddRoutes(routes ...Route) error { return n.eachRoute(routes, n.handle.RouteAdd) }

// RemoveRoutes removes routes that were added so.
func (n *Namespace) RemoveRoutes(routes ...Route) error {
	return n.eachRoute(routes, n.handle.RouteDel)
}

func (n *Namespace) eachRoute(routes []Route, change func(*netlink.Route) error) error {
	for _, r := range routes {
		nl := &netlink.Route{Dst: ipNet(r.Dst), MTU: r.MTU, MTULock: r.MTULocked}
		if r.Dev != "" {
			index, err := n.LinkIndex(r.Dev)
			if err != nil {
				return err
			}
			nl.LinkIndex = index
		}
		switch {
		case r.Local:
			nl.Type, nl.Table, nl.Scope = unix.RTN_LOCAL, unix.RT_TABLE_LOCAL, netlink.SCOPE_HOST
		case r.NotLocal:
			nl.Table, nl.Scope = unix.RT_TABLE_LOCAL, netlink.SCOPE_LINK
		case r.Via.IsValid():
			nl.Gw = r.Via.AsSlice()
		default:
			nl.Scope = netlink.SCOPE_LINK
		}
		if err := change(nl); err != nil {
			return fmt.Errorf("route %s in network namespace %s: %w", r.Dst, n.name, needRoot(err))
		}
	}
	return nil
}

// AddNeighbours enters hosts with one hardware address into the neighbour
// table of a device for good: a measurement must not meet an ARP exchange.
// Entries are replaced when present.
func (n *Namespace) AddNeighbours(dev, mac string, hosts ...netip.Addr) error {
	index, err := n.LinkIndex(dev)
	if err != nil {
		return err
	}
	hw, err := net.ParseMAC(mac)
	if err != nil {
		return n.wrap(dev, err)
	}
	for _, h := range hosts {
		e := &netlink.Neigh{LinkIndex: index, State: netlink.NUD_PERMANENT, IP: h.AsSlice(), HardwareAddr: hw}
		if err := n.handle.NeighSet(e); err != nil {
			return n.wrap(dev, fmt.Errorf("neighbour %s at %s: %w", h, mac, needRoot(err)))
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
