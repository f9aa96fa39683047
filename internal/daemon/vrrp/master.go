// SPDX-License-Identifier: Apache-2.0

package vrrp

import (
	"net/netip"
	"time"
)

// announceEvery is how often other masters cause announcements, at most.
const announceEvery = time.Second

// become makes a backup master. The lease comes first, as without it announcements are not
// allowed; the advertisement before the addresses, so that another master leaves soon.
func (m *Machine) become(now time.Duration, cause Cause, out *Output) {
	s := &m.memory
	s.Cadence, s.Slow = m.config.Interval, 0
	s.MasterInterval = m.config.Interval
	s.GaveUp, s.Reminders = false, 0
	s.Held = m.addresses
	s.MergeUntil, s.BetterUntil, s.QuietAt, s.OtherMaster = 0, 0, 0, false
	s.AssertAfter, s.AnnounceAfter = 0, 0
	for i := range s.Routers {
		s.Routers[i].Master = netip.Addr{} // the resignation of any later one counts
	}
	m.counts.Became++
	m.advertise(now, out)
	out.add(Action{Kind: ActionTake, Addresses: m.addresses, Accept: m.config.Accept})
	m.announceTwice(now, out)
	m.enter(Master, cause, out)
}

// advertise sends an advertisement by all routers, and renews the lease.
func (m *Machine) advertise(now time.Duration, out *Output) {
	s := &m.memory
	if s.Slow > 0 {
		s.Slow--
	} else {
		s.Cadence = m.interval()
	}
	s.Lease = now + missed*s.Cadence
	s.NextAdvert = now + s.Cadence
	out.add(Action{Kind: ActionLease, Until: s.Lease})
	m.send(s.Priority, out)
}

func (m *Machine) send(priority uint8, out *Output) {
	for i := range m.config.Routers {
		r := &m.config.Routers[i]
		out.add(Action{Kind: ActionAdvertise, Router: i, Advertisement: Advertisement{
			ID: r.ID, Priority: priority, Interval: m.interval(), Addresses: m.advertised[i], Plain: m.config.Plain,
		}})
		m.counts.Sent++
	}
}

// announceTwice announces now, and again later.
func (m *Machine) announceTwice(now time.Duration, out *Output) {
	m.announce(m.config.Announcements, out)
	m.memory.AnnounceAt, m.memory.Announced = now+m.config.AnnounceAgain, false
}

func (m *Machine) announce(repeat int, out *Output) {
	out.add(Action{Kind: ActionAnnounce, Addresses: m.addresses, Repeat: repeat})
	m.counts.Announced++
}

// leave ends the state of a master. The lease ends first: a map is written sooner than
// addresses are removed.
func (m *Machine) leave(now time.Duration, to State, cause Cause, resign bool, out *Output) {
	s := &m.memory
	s.Bridge = 0
	out.add(Action{Kind: ActionLease})
	if resign {
		m.send(PriorityResign, out)
	}
	out.add(Action{Kind: ActionRelease, Addresses: s.Held})
	s.Held, s.Lease, s.NextAdvert, s.Slow = nil, 0, 0, 0
	s.MergeUntil, s.BetterUntil, s.AnnounceAt, s.QuietAt, s.AssertAfter, s.AnnounceAfter = 0, 0, 0, 0, 0, 0
	s.OtherMaster = false
	s.Synchronized, s.Reminders = false, reminders
	m.counts.Left++
	if to == Backup {
		m.listen(now, 0)
	}
	m.enter(to, cause, out)
}

func (m *Machine) tickMaster(now time.Duration, out *Output) {
	s := &m.memory
	if s.MergeUntil != 0 {
		switch {
		case now >= s.BetterUntil:
			m.abort(now, out)
		case now >= s.MergeUntil:
			m.counts.MergeBounds++
			m.yield(now, CauseMergeBound, out)
			return
		}
	}
	if now >= s.NextAdvert {
		was := s.NextAdvert
		m.advertise(now, out)
		if next := was + s.Cadence; next > now { // so that lateness does not add up
			s.NextAdvert = next
		}
	}
	if s.QuietAt != 0 && now >= s.QuietAt {
		s.QuietAt = 0
		if s.OtherMaster {
			s.OtherMaster = false
			out.add(Action{Kind: ActionReport, Event: EventOtherMasterGone})
		}
		m.announceTwice(now, out) // the other one has released the addresses by now
	}
	if s.AnnounceAt != 0 && now >= s.AnnounceAt {
		repeat := m.config.Announcements
		if s.Announced {
			repeat = 1
		}
		s.AnnounceAt, s.Announced = now+m.config.AnnounceEvery, true
		m.announce(repeat, out)
	}
}

func (m *Machine) receiveMaster(now time.Duration, router int, from netip.Addr, a *Advertisement, out *Output) {
	s := &m.memory
	r := &s.Routers[router]
	if a.Priority == PriorityResign {
		if from == r.Left && now < s.LeftUntil {
			m.counts.Ignored++ // it left already, by this router or by another one
			return
		}
		r.Left, s.LeftUntil = from, now+a.Interval
		if s.MergeUntil != 0 && r.Master == from {
			m.abort(now, out)
		}
		m.other(now, router, from, out)
		return
	}
	if a.Priority == PriorityReminder {
		m.reclaim(now, out)
		return
	}
	c := m.compare(router, from, a)
	switch {
	case c < 0:
		if s.MergeUntil != 0 && r.Master == from {
			m.abort(now, out)
		}
		m.other(now, router, from, out)
	case c > 0:
		m.better(now, router, from, a, out)
	}
}

// compare is above 0 if the sender is the better master, and 0 if that is not to be decided
// by this router. Of equal priorities the higher address wins (RFC 9568, 6.4.3).
func (m *Machine) compare(router int, from netip.Addr, a *Advertisement) int {
	s := &m.memory
	if a.Priority != s.Priority {
		return int(a.Priority) - int(s.Priority)
	}
	if router != s.TieRouter {
		return 0
	}
	return from.Compare(m.config.Routers[router].Source)
}

// noteTie makes the first router that advertisements of equal priority pass decide ties: for
// two master-down times, so that it still does when both were backups meanwhile. Otherwise
// addresses that are in another order on another device would make both yield.
func (m *Machine) noteTie(now time.Duration, router int, a *Advertisement) {
	s := &m.memory
	if a.Priority != s.Priority || len(m.config.Routers) < 2 {
		return
	}
	if now >= s.TieUntil || router <= s.TieRouter {
		s.TieRouter, s.TieUntil = router, now+2*(missed+1)*max(a.Interval, m.config.Interval)
	}
}

// other replies to a master that has to leave: with an advertisement, as the RFC says, but
// not more often than twice in an interval, and with announcements.
func (m *Machine) other(now time.Duration, router int, from netip.Addr, out *Output) {
	s := &m.memory
	if !s.OtherMaster {
		s.OtherMaster = true
		m.counts.OtherMasters++
		out.add(Action{Kind: ActionReport, Event: EventOtherMaster, Router: router, Peer: from})
	}
	if now >= s.AssertAfter {
		s.AssertAfter = now + s.Cadence/2
		m.counts.Asserted++
		m.advertise(now, out)
	}
	m.reclaim(now, out)
}

// reclaim announces the addresses because another director did, or may have: now, though not
// each time, and when that has certainly released them.
func (m *Machine) reclaim(now time.Duration, out *Output) {
	s := &m.memory
	s.QuietAt = now + missed*s.Cadence
	if now >= s.AnnounceAfter {
		s.AnnounceAfter = now + announceEvery
		m.announce(m.config.Announcements, out)
	}
}

// better yields to a better master, after a merge of tables. It advertises once more: the
// better master may not know of this one, and has to announce the addresses.
func (m *Machine) better(now time.Duration, router int, from netip.Addr, a *Advertisement, out *Output) {
	s := &m.memory
	r := &s.Routers[router]
	r.Master, s.MasterHighest = from, a.Priority
	s.MasterInterval = a.Interval
	s.BetterUntil = now + m.down()
	if s.MergeUntil == 0 {
		m.send(s.Priority, out)
	}
	if m.config.Merge == 0 {
		m.yield(now, CauseBetter, out)
		return
	}
	if s.MergeUntil == 0 {
		s.MergeUntil = now + m.config.Merge
		out.add(Action{Kind: ActionMerge, Router: router, Peer: from})
	}
}

// yield leaves for the better master, which has until then to advertise again.
func (m *Machine) yield(now time.Duration, cause Cause, out *Output) {
	until := m.memory.BetterUntil
	m.leave(now, Backup, cause, false, out)
	m.memory.Deadline = until
}

// abort ends a merge: it stays master.
func (m *Machine) abort(now time.Duration, out *Output) {
	s := &m.memory
	s.MergeUntil, s.BetterUntil = 0, 0
	s.MasterInterval = m.config.Interval
	out.add(Action{Kind: ActionReport, Event: EventMergeAborted})
	m.advertise(now, out)
	m.announceTwice(now, out)
}
