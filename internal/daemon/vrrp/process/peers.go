// SPDX-License-Identifier: Apache-2.0

package process

import (
	"net/netip"
	"slices"
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
	same := func(a, b PeerAddress) bool { return a.Index == b.Index && slices.Equal(a.MAC, b.MAC) }
	if slices.EqualFunc(all, l.peers, same) {
		return
	}
	err := l.plane.Peers(all)
	if l.noted(planeError{use: usePeers}, err); err == nil {
		l.peers = all
	}
}
