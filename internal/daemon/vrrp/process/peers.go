// SPDX-License-Identifier: Apache-2.0

package process

import (
	"net/netip"
	"slices"

	"imbang/internal/host"
)

// peerServers are the other directors on the link of a router that are servers of this one:
// those that were heard, or are configured. Mostly there are none, and then the data plane is
// not told of any: XDP leaves all packets that open connections to the classifiers otherwise.
func (g *group) peerServers(router int) (all []netip.Addr) {
	r := &g.setup.Routers[router]
	for _, addr := range append([]netip.Addr{g.heard[router]}, r.Peers...) {
		if addr.IsValid() && g.loop.setup.IsServer(addr) && !slices.Contains(all, addr) {
			all = append(all, addr)
		}
	}
	return all
}

// configuredPeers are those that the configuration names, on each device in whose network they are.
func (l *loop) configuredPeers() (all []neighbour) {
	if l.setup == nil { // before the start
		return nil
	}
	for _, addr := range l.setup.Peers {
		on, own := host.Beside(l.devices, addr)
		for _, d := range on {
			if !own {
				all = append(all, neighbour{d.Index, addr})
			}
		}
	}
	return all
}

// writePeers tells the data plane of them, as far as their hardware addresses are known.
func (l *loop) writePeers() {
	if l.plane == nil {
		return
	}
	var all []PeerAddress
	for _, g := range l.groups {
		for i := range g.setup.Routers {
			d := g.devices[g.setup.Routers[i].Device]
			if d == nil {
				continue
			}
			for _, addr := range g.peerServers(i) {
				if mac := g.macs[neighbour{d.Index, addr}]; len(mac) == 6 {
					all = append(all, PeerAddress{d.Index, mac})
				}
			}
		}
	}
	for _, g := range l.groups {
		all = append(all, g.unheardPeers()...)
	}
	for _, n := range l.configuredPeers() {
		if mac := l.macs[n]; len(mac) == 6 {
			all = append(all, PeerAddress{n.index, mac})
		}
	}
	same := func(a, b PeerAddress) bool { return a.Index == b.Index && slices.Equal(a.MAC, b.MAC) }
	if slices.EqualFunc(all, l.peers, same) {
		return
	}
	err := l.plane.Peers(all)
	if l.noted(planeError{use: usePeers}, err); err == nil {
		l.peers = all
	}
}
