// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/control"
	"imbang/internal/daemon/vrrp/setup"
)

// group is a machine and what it is about.
type group struct {
	*loop
	setup   setup.Group
	machine *vrrp.Machine
	out     vrrp.Output
	next    time.Duration // when the machine is due; 0: never
	sources []netip.Addr  // of the routers, as known last
	config  vrrp.Config   // of the machine

	effective uint8
	faults    []string
	// failed is why the addresses cannot be configured, and failedUntil when that is tried
	// again.
	failed      string
	failedUntil time.Duration
	failures    int  // since the last success
	refrains    bool // it does not preempt since then
	// holds are the addresses that the machine has taken, and unannounced those that are not
	// announced yet, as the host does not have them, with the repetitions.
	holds       []vrrp.Address
	unannounced map[vrrp.Address]int
	// pendingSince is since when the kernel has had to add some of them, and overdue: that took
	// too long (overdue.go).
	pendingSince time.Duration
	overdue      bool
	foreign      []string // addresses of another program
	// forgotten: the machine does not count as synchronized any more, which is dealt with
	// behind a call. It does again when the connection table is that of awaited or later.
	forgotten        bool
	awaited          uint64
	saidSynchronized bool
	merge            *control.Merge // that is requested
	moving           time.Duration  // when the group was given up, until another master is heard
	// heard are the masters that were heard last, of each router, heardAt when any was, and
	// heardInterval and heardPriority are its own.
	heard         []netip.Addr
	heardAt       time.Duration
	heardInterval time.Duration
	heardPriority uint8
	handing
	resignation
	detachedBefore []string        // as the last review knew it
	restored       []time.Duration // when addresses that somebody removed were added again

	since     time.Time
	cause     vrrp.Cause
	lease     time.Duration
	refused   vrrp.Refused
	strangers uint64 // advertisements by unicast of no peer
	unsent    uint64
	sending   map[sending]string // errors of the last advertisements
	sentAt    time.Duration      // the last success, or when it became master
	announced uint64             // packets
	probes    map[netip.Addr]*probe
}

// sending is from a router to a destination.
type sending struct {
	router int
	to     netip.Addr
}

// probe asks the kernel for a peer's hardware address.
type probe struct {
	busy bool
	next time.Duration
}

// Between failures to configure the addresses, and of addresses that somebody removes.
const (
	retryMost     = 10 * time.Minute
	restoreWithin = 10 * time.Second
	restoreLimit  = 10
)

// retryAfter is the time after the first failure, doubled with each one in a row. Tests change
// it.
var retryAfter = 10 * time.Second

func newGroup(l *loop, s *setup.Group) *group {
	return &group{
		loop: l, setup: *s, sources: make([]netip.Addr, len(s.Routers)), heard: make([]netip.Addr, len(s.Routers)), since: time.Now(),
		unannounced: map[vrrp.Address]int{}, sending: map[sending]string{}, probes: map[netip.Addr]*probe{},
		handing: handing{hands: map[int]net.HardwareAddr{}},
	}
}

// make makes the machine of a group that starts.
func (g *group) make() error {
	g.consider()
	m, err := vrrp.New(g.config)
	if err == nil {
		g.machine = m
	}
	return err
}

// restore goes on with the machine of another process.
func (g *group) restore(t time.Duration, s vrrp.Snapshot, m memory) error {
	g.consider()
	var err error
	var out vrrp.Output
	g.machine, err = vrrp.Restore(t, g.config, s, &out)
	if err != nil {
		return err
	}
	// Sockets are not open yet, and actions cannot wait: those of a first call are done.
	g.out = out
	g.next = out.Next
	if !m.Since.IsZero() { // an earlier version of the program did not say it
		g.since = m.Since
	}
	g.cause, g.refrains, g.failures, g.sentAt = m.Cause, m.Refrains, m.Failures, t
	if g.machine.State() == vrrp.Master {
		g.lease = s.Lease // the earlier program wrote it
	}
	g.take(s.Held) // the host has them, but that is to be confirmed
	if !slices.ContainsFunc(s.Held, func(a vrrp.Address) bool { d := g.devices[a.Device]; return d == nil || !d.Has(a.Prefix) }) {
		g.pendingSince = 0 // which may take long
	}
	return nil
}

// begin starts a machine, or does what restoring it has left.
func (g *group) begin(t time.Duration) {
	if g.machine.State() != vrrp.Initialize {
		restored := g.out
		g.call(func(_ *vrrp.Machine, out *vrrp.Output) { *out = restored })
		g.review(t)
		return
	}
	if err := g.make(); err != nil { // anew: it may have waited, and be configured otherwise by now
		g.Log.Error("the group keeps its earlier configuration", "group", g.setup.Name, "error", err) // the parser has tried it
	}
	g.faults = g.findFaults()
	g.call(func(m *vrrp.Machine, out *vrrp.Output) {
		m.SetFault(t, len(g.faults) > 0, out)
		m.Start(t, out)
	})
}

// call calls the machine, and does what it says.
func (g *group) call(f func(m *vrrp.Machine, out *vrrp.Output)) {
	if g.next != 0 { // whatever the call is for: an advertisement that is read first hides a late timer
		g.loop.late = max(g.loop.late, now()-g.next)
	}
	g.out.Reset()
	was := g.machine.State()
	f(g.machine, &g.out)
	if g.machine.State() != was {
		g.sentAt = now() // it has as long as others wait for it
	}
	g.next = g.out.Next
	for i := range g.out.Actions { // before addresses are announced, or a resignation is sent
		switch a := &g.out.Actions[i]; {
		case a.Kind != vrrp.ActionNotify:
		case a.State == vrrp.Master:
			g.takeOver(a.Cause)
		case was == vrrp.Master:
			g.giveWay()
		}
	}
	for i := range g.out.Actions {
		g.do(&g.out.Actions[i])
	}
	if g.machine.State() != was && len(g.unheard()) > 0 {
		g.seekOthers()
	}
	if g.forgotten {
		g.forgotten = false
		g.forget()
	}
}

func (g *group) do(a *vrrp.Action) {
	switch a.Kind {
	case vrrp.ActionLease:
		g.renew(a.Until)
	case vrrp.ActionAdvertise:
		if a.Advertisement.Priority == vrrp.PriorityResign {
			g.resign(a.Router, &a.Advertisement)
		} else {
			g.advertise(a.Router, &a.Advertisement)
		}
	case vrrp.ActionTake:
		g.take(a.Addresses)
	case vrrp.ActionRelease:
		g.release(a.Addresses)
	case vrrp.ActionAnnounce:
		g.announce(a.Addresses, a.Repeat)
	case vrrp.ActionNotify:
		g.forgotten = g.forgotten || a.State == vrrp.Backup
		g.notify(a)
		g.entered(a)
	case vrrp.ActionMerge:
		g.wantMerge(a)
	case vrrp.ActionReport:
		if a.Event == vrrp.EventMergeAborted {
			g.merge = nil
		}
		g.forgotten = g.forgotten || a.Event == vrrp.EventStalled
		g.report(a)
	}
}

// receive is a message for a router of the group.
func (g *group) receive(t time.Duration, router int, message []byte, p vrrp.Packet) {
	r := &g.setup.Routers[router]
	unicast := len(r.Peers) > 0
	if unicast && !slices.Contains(r.Peers, p.Source) {
		if g.strangers++; g.strangers == 1 {
			g.Log.Warn("an advertisement of a director that is not among the peers is ignored", "group", g.setup.Name, "from", p.Source)
		}
		return
	}
	reason := vrrp.Parse(message, p, r.ID, unicast, &g.advertisement)
	if reason != vrrp.Accepted {
		if g.refused[reason]++; g.refused[reason] == 1 {
			g.Log.Warn("an advertisement is refused", "group", g.setup.Name, "device", r.Device, "id", r.ID, "from", p.Source, "reason", reason.String())
		}
		return
	}
	g.call(func(m *vrrp.Machine, out *vrrp.Output) { m.Receive(t, router, p.Source, &g.advertisement, out) })
	g.hear(t, router, p.Source, &g.advertisement)
}

func (g *group) advertise(router int, a *vrrp.Advertisement) {
	r := &g.setup.Routers[router]
	if d := g.devices[r.Device]; d == nil || !d.Up {
		// A resignation. Without a carrier it would begin a neighbour's resolution, which the
		// kernel tries again once a second: later advertisements by unicast would wait for it.
		g.unsent++
		return
	}
	source := g.config.Routers[router].Source
	for _, to := range destinations(r) {
		g.send(router, source, to, a)
		if len(r.Peers) > 0 {
			g.solicit(r, source, to)
		}
	}
}

var group4, group6 = []netip.Addr{vrrp.Group4}, []netip.Addr{vrrp.Group6}

// destinations are those of a router's advertisements.
func destinations(r *setup.Router) []netip.Addr {
	switch {
	case len(r.Peers) > 0:
		return r.Peers
	case r.IPv6():
		return group6
	}
	return group4
}

func (g *group) send(router int, source, to netip.Addr, a *vrrp.Advertisement) {
	r := &g.setup.Routers[router]
	s := g.sockets[spot{r.Device, r.IPv6()}]
	if s == nil || s.Socket == nil {
		g.sent(router, to, fmt.Errorf("there is no socket on device %s", r.Device))
		return
	}
	var err error
	if g.message, err = a.Append(g.message[:0], source, to); err == nil {
		err = s.Send(g.message, source, to)
	}
	g.sent(router, to, err)
}

// probeAfter is the least time between two probes of a peer.
const probeAfter = 50 * time.Millisecond

// solicit asks for a peer's hardware address while the kernel has none. It does so itself
// only once a second, and advertisements wait for that. When messages pass again after a
// split, the request also gives the peer the own address, which it may lack for the same
// reason: two masters learn of each other within an interval.
func (g *group) solicit(r *setup.Router, source, peer netip.Addr) {
	d, p := g.devices[r.Device], g.probes[peer]
	if p == nil {
		p = &probe{}
		g.probes[peer] = p
	}
	if p.busy || now() < p.next {
		return
	}
	p.busy, p.next = true, now()+probeAfter
	g.worker.do(func() {
		unresolved := g.links.Unresolved(d, peer)
		g.poll.post(func() {
			p.busy = false
			if n, has := d.Solicitation(source, peer); unresolved && has {
				_ = g.announcer.Send(&n) // as the advertisement: the next one tries again
			}
		})
	})
}

// sent notes what became of an advertisement: the first failure in a row to a destination is
// logged. A master of which none arrives anywhere is none: another director takes over, so it
// leaves.
func (g *group) sent(router int, to netip.Addr, err error) {
	key := sending{router, to}
	if err == nil {
		if len(g.sending) > 0 {
			delete(g.sending, key)
		}
		g.sentAt = now()
		return
	}
	g.unsent++
	if r := &g.setup.Routers[router]; g.sending[key] == "" && len(g.faults) == 0 {
		g.Log.Warn("an advertisement cannot be sent", "group", g.setup.Name, "device", r.Device, "id", r.ID, "to", to, "error", err)
	}
	g.sending[key] = err.Error()
	if g.machine.State() == vrrp.Master && g.failed == "" && now()-g.sentAt > (missedIntervals+1)*g.setup.Interval {
		g.fail("no advertisement can be sent: " + err.Error())
	}
}

// missedIntervals and a skew are the time after which others take over (RFC 9568, 6.1).
const missedIntervals = 3

// byDevice calls f for the addresses of each device, in order.
func byDevice(addresses []vrrp.Address, f func(device string, prefixes []netip.Prefix)) {
	var names []string
	for _, a := range addresses {
		if !slices.Contains(names, a.Device) {
			names = append(names, a.Device)
		}
	}
	for _, name := range names {
		var prefixes []netip.Prefix
		for _, a := range addresses {
			if a.Device == name {
				prefixes = append(prefixes, a.Prefix)
			}
		}
		f(name, prefixes)
	}
}

// fail begins a fault, and the time until the addresses are tried again, which is doubled each
// time. The group does not preempt then, as it would only interrupt the other director again:
// until it was master with all addresses, or a reload. The machine is told in the next round.
func (g *group) fail(text string) {
	if g.failed == "" {
		g.failures++
		g.refrains = true
	}
	g.failed, g.failedUntil = strings.ReplaceAll(text, "\n", "; "), now()+pauseAfter(g.failures)
	g.poll.post(func() {
		g.review(now())
		if g.refrains {
			g.machine.Refrain()
		}
	})
}

// pauseAfter is the time after which a fault of so many failures in a row is tried again.
func pauseAfter(failures int) time.Duration {
	return min(retryAfter<<min(max(failures-1, 0), 10), retryMost)
}

// forgive lets a group try at once, and preempt again, that could not do what a master does.
func (g *group) forgive() {
	if g.refrains {
		g.failures, g.refrains = 0, false
		g.failed, g.failedUntil = "", 0
		g.machine.Reclaim()
	}
}

// retry ends the fault of addresses that could not be configured, to try again.
func (g *group) retry(t time.Duration) {
	if g.failedUntil != 0 && t >= g.failedUntil {
		g.failed, g.failedUntil = "", 0
		g.review(t)
	}
}

// announce announces addresses, those that the host does not have yet as soon as it has them,
// and those that it cannot have not.
func (g *group) announce(addresses []vrrp.Address, repeat int) {
	var packets []announcing
	var present []vrrp.Address
	for _, a := range addresses {
		if has, wanted := g.known[a]; has {
			present = append(present, a)
		} else if wanted {
			g.unannounced[a] = max(g.unannounced[a], repeat)
		}
	}
	byDevice(present, func(device string, prefixes []netip.Prefix) {
		d := g.devices[device]
		if d == nil {
			return
		}
		var all []netip.Addr
		for _, p := range prefixes {
			all = append(all, p.Addr())
		}
		of := d.Announcements(all)
		for i := range of { // one for each address, or none
			packets = append(packets, announcing{vrrp.Address{Device: device, Prefix: prefixes[i]}, of[i]})
		}
	})
	if len(packets) == 0 || repeat == 0 {
		return
	}
	g.outbox = append(g.outbox, announcement{group: g, packets: packets, repeat: repeat})
	if len(g.outbox) == 1 {
		g.sendAnnouncements()
	}
}

// report logs an event.
func (g *group) report(a *vrrp.Action) {
	attrs := []any{"group", g.setup.Name}
	if a.Peer.IsValid() {
		r := &g.setup.Routers[a.Router]
		attrs = append(attrs, "device", r.Device, "id", r.ID, "from", a.Peer)
	}
	g.Log.Warn(a.Event.String(), attrs...)
}
