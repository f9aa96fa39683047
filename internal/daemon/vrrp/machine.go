// SPDX-License-Identifier: Apache-2.0

package vrrp

import (
	"net/netip"
	"slices"
	"time"
)

// Machine is the state machine of a group. Each call has the time, by a clock that also runs
// while the host is suspended (CLOCK_BOOTTIME) and is above 0, and appends to an Output.
// All advertisements that have arrived must be passed to Receive before Tick: otherwise a
// process that was late would take a master for dead whose packets are in its socket.
type Machine struct {
	config     Config
	addresses  []Address
	advertised [][]netip.Addr // of each router
	memory     Snapshot
	counts     Counts
	unready    bool // SetReady
}

// New makes the machine of a group. It does not run before Start.
func New(config Config) (*Machine, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	m := &Machine{}
	m.configure(config)
	m.memory.Priority = config.Priority
	m.memory.MasterInterval = config.Interval
	return m, nil
}

// configure sets a complete configuration, and makes the memory that of its routers.
func (m *Machine) configure(config Config) {
	m.config, m.addresses, m.advertised = config, config.addresses(), nil
	old := m.memory.Routers
	m.memory.Routers = nil
	for i := range m.config.Routers {
		r := &m.config.Routers[i]
		kept := RouterSnapshot{Device: r.Device, ID: r.ID, IPv4: r.is4()}
		for _, o := range old {
			if (routerKey{o.Device, o.ID, o.IPv4}) == r.key() {
				kept = o
			}
		}
		m.memory.Routers = append(m.memory.Routers, kept)
		var list []netip.Addr
		for _, a := range r.all() {
			list = append(list, a.Prefix.Addr())
		}
		m.advertised = append(m.advertised, list)
	}
}

// State is the current one.
func (m *Machine) State() State { return m.memory.State }

// Merging reports whether a master waits for Merged.
func (m *Machine) Merging() bool { return m.memory.State == Master && m.memory.MergeUntil != 0 }

// Counts are the counters.
func (m *Machine) Counts() Counts { return m.counts }

// Start begins to listen. What an earlier process may have left is released.
func (m *Machine) Start(now time.Duration, out *Output) {
	if m.memory.State != Initialize {
		return
	}
	m.memory.Seen = now
	out.add(Action{Kind: ActionLease})
	out.add(Action{Kind: ActionRelease, Addresses: m.addresses})
	m.memory.Synchronized = false
	m.memory.Reminders = reminders // an earlier process may have been master
	if m.memory.Faulty {
		m.enter(Fault, CauseFault, out)
	} else {
		m.memory.MasterInterval = m.config.Interval
		m.listen(now, m.config.Hold)
		m.enter(Backup, CauseStart, out)
		m.memory.HoldUntil = now + m.config.Hold
	}
	m.due(out)
}

// Tick has to be called at Output.Next.
func (m *Machine) Tick(now time.Duration, out *Output) {
	m.awake(now, out)
	switch m.memory.State {
	case Backup:
		m.tickBackup(now, out)
	case Master:
		m.tickMaster(now, out)
	}
	m.due(out)
}

// Receive is an advertisement of another director, by the virtual router with this index.
func (m *Machine) Receive(now time.Duration, router int, from netip.Addr, a *Advertisement, out *Output) {
	m.awake(now, out)
	m.receive(now, router, from, a, out)
	m.due(out)
}

func (m *Machine) receive(now time.Duration, router int, from netip.Addr, a *Advertisement, out *Output) {
	m.counts.Received++
	if a.Priority == PriorityResign {
		m.counts.Resigned++
	}
	r := &m.memory.Routers[router]
	if from == m.config.Routers[router].Source { // looped back, or an address that is used twice
		if m.counts.Own++; m.counts.Own == 1 {
			out.add(Action{Kind: ActionReport, Event: EventOwnAddress, Router: router, Peer: from})
		}
		return
	}
	if a.Priority != PriorityResign && from == r.Left && now < m.memory.LeftUntil {
		m.counts.Ignored++ // sent before it left, and late
		return
	}
	m.noteTie(now, router, a)
	switch m.memory.State {
	case Backup:
		m.checkAddresses(router, from, a, out)
		m.receiveBackup(now, r, from, a)
		m.remind(a, out)
	case Master:
		m.receiveMaster(now, router, from, a, out)
	default:
		m.counts.Ignored++
	}
}

// checkAddresses reports when a master's addresses begin or cease to differ. They may be in
// another order. RFC 9568, 7.1 logs a difference, too.
func (m *Machine) checkAddresses(router int, from netip.Addr, a *Advertisement, out *Output) {
	own := m.advertised[router]
	differs := len(own) != len(a.Addresses)
	if !slices.Equal(own, a.Addresses) { // mostly they are
		for _, address := range own {
			differs = differs || !slices.Contains(a.Addresses, address)
		}
	}
	if r := &m.memory.Routers[router]; r.Differs != differs {
		r.Differs = differs
		event := EventAddressesAgree
		if differs {
			event = EventAddressesDiffer
		}
		out.add(Action{Kind: ActionReport, Event: event, Router: router, Peer: from})
	}
}

// awake notices gaps between calls: of the process, or of the host. A master whose lease
// ended has not advertised for so long that another one can have taken over.
func (m *Machine) awake(now time.Duration, out *Output) {
	gap := now - m.memory.Seen
	m.memory.Seen = now
	if gap > m.patience() || m.memory.State == Master && now >= m.memory.Lease {
		m.stalled(now, out)
	}
}

// Stalled says that the host stood still in a way that its clock does not show, as an
// emulated machine that was stopped.
func (m *Machine) Stalled(now time.Duration, out *Output) {
	m.memory.Seen = now
	m.stalled(now, out)
	m.due(out)
}

func (m *Machine) stalled(now time.Duration, out *Output) {
	switch m.memory.State {
	case Backup:
		m.memory.Deadline = max(m.memory.Deadline, now+m.down())
		m.memory.Resigned = false
	case Master:
		m.leave(now, Backup, CauseStall, false, out)
	default:
		return
	}
	m.counts.Stalls++
	m.memory.Synchronized = false
	out.add(Action{Kind: ActionReport, Event: EventStalled})
}

// SetPriority sets the effective priority, as that of tracking; it is raised to
// PriorityLowest.
func (m *Machine) SetPriority(now time.Duration, priority uint8, out *Output) {
	m.awake(now, out)
	m.setPriority(now, max(PriorityLowest, priority), out)
	m.due(out)
}

func (m *Machine) setPriority(now time.Duration, priority uint8, out *Output) {
	if priority == m.memory.Priority {
		return
	}
	m.memory.Priority = priority
	switch m.memory.State {
	case Backup:
		m.reconsider(now)
	case Master: // others decide by the new one
		m.advertise(now, out)
	}
}

// SetSynchronized says whether the table is that of the master. The machine itself forgets
// it when it starts, ceases to be master, or stalls; it has to be set again then.
func (m *Machine) SetSynchronized(now time.Duration, synchronized bool, out *Output) {
	m.awake(now, out)
	m.memory.Synchronized = synchronized
	if m.memory.State == Backup {
		m.reconsider(now)
	}
	m.due(out)
}

// SetReady says whether the host could take the addresses now; at first it can. One that
// cannot does not preempt, and replaces a dead master.
func (m *Machine) SetReady(now time.Duration, ready bool, out *Output) {
	m.awake(now, out)
	m.unready = !ready
	if m.memory.State == Backup {
		m.reconsider(now)
	}
	m.due(out)
}

// Ready is what SetReady said.
func (m *Machine) Ready() bool { return !m.unready }

// Preempting reports whether a backup is about to preempt a master.
func (m *Machine) Preempting() bool { return m.memory.State == Backup && m.memory.LowerUntil != 0 }

// SetFault begins or ends a local fault: the group leaves for as long as it lasts.
func (m *Machine) SetFault(now time.Duration, faulty bool, out *Output) {
	m.awake(now, out)
	m.setFault(now, faulty, out)
	m.due(out)
}

func (m *Machine) setFault(now time.Duration, faulty bool, out *Output) {
	if m.memory.Faulty == faulty {
		return
	}
	m.memory.Faulty = faulty
	switch {
	case faulty && m.memory.State == Master:
		m.leave(now, Fault, CauseFault, true, out)
	case faulty && m.memory.State == Backup:
		m.enter(Fault, CauseFault, out)
	case !faulty && m.memory.State == Fault:
		m.memory.MasterInterval = m.config.Interval
		m.memory.Synchronized = false
		m.listen(now, 0)
		m.enter(Backup, CauseFaultGone, out)
	}
}

// GiveUp makes a master leave for another director, which is told to Take. It does not
// preempt until it was master again, or Reclaim. The resignation is repeated a few times
// until another master is heard. If no other director takes over this one becomes master after
// its master-down time, in a pair after half of that. It reports whether it was master.
func (m *Machine) GiveUp(now time.Duration, out *Output) bool {
	m.awake(now, out)
	was := m.memory.State == Master
	if was {
		m.leave(now, Backup, CauseGaveUp, true, out)
		m.memory.GaveUp = true
		m.memory.LeftUntil = 0 // the master that left shortly before may be the one that takes over
		m.memory.Deadline = m.retake(now)
		m.memory.Repeats, m.memory.RepeatAt = repeats, now+m.repeatAfter()
	}
	m.due(out)
	return was
}

// Refrain has the machine not preempt until it was master again, or Reclaim: it was master, and
// could not do what a master has to.
func (m *Machine) Refrain() { m.memory.GaveUp = true }

// Reclaim allows preemption again after GiveUp and Refrain.
func (m *Machine) Reclaim() { m.memory.GaveUp = false }

// Take makes a backup master at once. The caller knows that the master gave up. It reports
// whether it was done.
func (m *Machine) Take(now time.Duration, out *Output) bool {
	m.awake(now, out)
	can := m.memory.State == Backup
	if can {
		for i := range m.memory.Routers {
			r := &m.memory.Routers[i]
			r.Left = r.Master
		}
		m.memory.LeftUntil = now + m.memory.MasterInterval
		m.become(now, CauseTake, out)
	}
	m.due(out)
	return can
}

// Merged says that the tables of the better master and of this one are merged.
func (m *Machine) Merged(now time.Duration, out *Output) {
	m.awake(now, out)
	if m.Merging() {
		m.yield(now, CauseMerged, out)
	}
	m.due(out)
}

// Shutdown leaves for good.
func (m *Machine) Shutdown(now time.Duration, out *Output) {
	switch m.memory.State {
	case Master:
		m.leave(now, Initialize, CauseShutdown, true, out)
	case Backup, Fault:
		m.enter(Initialize, CauseShutdown, out)
	}
	m.due(out)
}

// enter changes the state.
func (m *Machine) enter(s State, c Cause, out *Output) {
	m.memory.State = s
	m.memory.PreemptAt, m.memory.LowerUntil, m.memory.LowerPriority = 0, 0, 0
	m.memory.HoldUntil, m.memory.Resigned = 0, false
	m.memory.Repeats, m.memory.RepeatAt = 0, 0
	if s != Backup {
		m.memory.Deadline = 0
	}
	out.add(Action{Kind: ActionNotify, State: s, Cause: c, Priority: m.memory.Priority})
}
