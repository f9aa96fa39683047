// SPDX-License-Identifier: Apache-2.0

package process

import (
	"slices"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/host"
)

// On a device that has addresses of a group and none of its routers, as the servers' gateway
// address, or those of clients if advertisements go over the servers' side, no advertisement is heard. The hardware address of the master there is the one that
// answers for the address, so a director that is not master asks for it.

// unheard are the first addresses of the group on such devices.
func (g *group) unheard() (all []vrrp.Address) {
	for _, a := range g.setup.AllAddresses() {
		if !slices.ContainsFunc(g.setup.Routers, func(r setup.Router) bool { return r.Device == a.Device }) &&
			!slices.ContainsFunc(all, func(o vrrp.Address) bool { return o.Device == a.Device }) {
			all = append(all, a)
		}
	}
	return all
}

// unheardMasters are those that were asked for, or are to be: while this director is master, or has
// the address still, it would ask for itself, in the name of the address.
func (g *group) unheardMasters() (known, ask []neighbour) {
	for _, a := range g.unheard() {
		d := g.devices[a.Device]
		if d == nil {
			continue
		}
		n := neighbour{d.Index, a.Prefix.Addr()}
		if g.plane == nil || g.machine.State() == vrrp.Master || g.held(a) || d.Has(a.Prefix) {
			known = append(known, n)
		} else {
			ask = append(ask, n)
		}
	}
	return known, ask
}

// forgetUnheard forgets the master before this one: another one follows.
func (g *group) forgetUnheard() {
	for _, a := range g.unheard() {
		if d := g.devices[a.Device]; d != nil {
			delete(g.macs, neighbour{d.Index, a.Prefix.Addr()})
		}
	}
}

// seekUnheard asks for those that are not known yet: the next master was heard.
func (g *group) seekUnheard() {
	_, ask := g.unheardMasters()
	if slices.ContainsFunc(ask, func(n neighbour) bool { return g.macs[n] == nil }) {
		g.seek()
	}
}

// handUnheard hands packets to the other director on such devices, which gets them on the others.
func (g *group) handUnheard() {
	for _, a := range g.unheard() {
		if d := g.devices[a.Device]; d != nil {
			g.handTo(d, g.macs[neighbour{d.Index, a.Prefix.Addr()}])
		}
	}
}

// isServerOn reports whether this director has an address of a server on a device.
func (l *loop) isServerOn(d *host.Device) bool {
	return slices.ContainsFunc(d.Addresses, func(a host.DeviceAddress) bool { return l.setup.IsServer(a.Prefix.Addr()) })
}

// unheardPeers are other directors on such devices, if this one is a server there: they send it what
// they have scheduled.
func (g *group) unheardPeers() (all []PeerAddress) {
	for _, a := range g.unheard() {
		d := g.devices[a.Device]
		if d == nil {
			continue
		}
		mac := g.macs[neighbour{d.Index, a.Prefix.Addr()}]
		if len(mac) == 6 && !slices.Equal(mac, d.MAC) && g.isServerOn(d) {
			all = append(all, PeerAddress{d.Index, mac})
		}
	}
	return all
}
