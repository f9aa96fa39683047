// SPDX-License-Identifier: Apache-2.0

package process

import (
	"net"
	"net/netip"
	"slices"
	"time"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/host"
)

// leaveGrace is for how long a former master does not pass packets of unknown connections to
// its stack, and hands them to its successor: until hosts have heard the announcements.
const leaveGrace = time.Second

// handing is what a group has the data plane do with packets of unknown connections.
type handing struct {
	grace time.Duration            // until when they are dropped; 0: they are not
	hands map[int]net.HardwareAddr // whom they are handed to, by device
	// to are the directors that get them until a time, of each router: before this one was
	// master, or after. Their hardware addresses may be known later.
	to    []netip.Addr
	until time.Duration // 0: none gets them
}

// takeOver prepares the data plane for a takeover, before addresses are announced. Packets
// of connections that are not known (yet) are not passed to the stack for a while. If the
// former master is alive, because it resigned or was preempted, it gets them.
func (g *group) takeOver(cause vrrp.Cause) {
	g.endHands()
	g.until = 0
	if g.plane == nil || g.loop.setup.Grace == 0 {
		return
	}
	t := now()
	end := t + g.loop.setup.Grace
	alive := cause == vrrp.CauseResigned || cause == vrrp.CauseTake || g.heardAt != 0 && t-g.heardAt < 2*g.heardInterval
	if alive {
		g.to, g.until = slices.Clone(g.heard), end
		g.hand()
	}
	g.setGrace(end)
}

// giveWay prepares the data plane for the end of being master, before others are told: packets
// that still come here may be of connections that the successor opens from now on. What was
// handed to the master before this one is not any more: among three directors it could
// come back.
func (g *group) giveWay() {
	g.endHands()
	g.until = 0
	if g.plane == nil || g.loop.setup.Grace == 0 {
		return
	}
	g.until = now() + min(leaveGrace, g.loop.setup.Grace)
	g.to = make([]netip.Addr, len(g.setup.Routers))
	g.forgetUnheard()
	g.setGrace(g.until)
}

// succeeded has a master that was heard after this one get them.
func (g *group) succeeded(router int, from netip.Addr) {
	if g.until != 0 && g.machine.State() != vrrp.Master && router < len(g.to) {
		g.to[router] = from
		g.seekUnheard()
		g.hand()
	}
}

// setGrace sets the group's grace period. The director has one: the longest.
func (g *group) setGrace(until time.Duration) {
	g.grace = until
	for _, o := range g.groups {
		until = max(until, o.grace)
	}
	g.noted(planeError{use: useGrace}, g.plane.Grace(until))
}

// hand has other directors get packets of connections that are not known here, as soon as
// their hardware addresses are known.
func (g *group) hand() {
	if g.until == 0 || g.plane == nil || len(g.to) != len(g.setup.Routers) {
		return
	}
	if now() >= g.until {
		g.until = 0
		return
	}
	for i := range g.setup.Routers {
		d := g.devices[g.setup.Routers[i].Device]
		if d == nil || !g.to[i].IsValid() {
			continue
		}
		g.handTo(d, g.macs[neighbour{d.Index, g.to[i]}])
	}
	if slices.ContainsFunc(g.to, netip.Addr.IsValid) {
		g.handUnheard()
	}
}

// handTo has the director with a hardware address on a device get them.
func (g *group) handTo(d *host.Device, mac net.HardwareAddr) {
	if len(mac) != 6 || slices.Equal(mac, d.MAC) || slices.Equal(mac, g.hands[d.Index]) {
		return
	}
	err := g.plane.Hand(d.Index, mac, g.until)
	if g.noted(planeError{useHand, g.setup.Name}, err); err == nil {
		g.hands[d.Index] = mac
	}
}

// endHands ends what the group has begun.
func (g *group) endHands() {
	for index := range g.hands {
		if g.plane != nil {
			g.noted(planeError{useHand, g.setup.Name}, g.plane.Hand(index, nil, 0))
		}
		delete(g.hands, index)
	}
}
