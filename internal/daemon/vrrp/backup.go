// SPDX-License-Identifier: Apache-2.0

package vrrp

import (
	"net/netip"
	"time"
)

func (m *Machine) tickBackup(now time.Duration, out *Output) {
	s := &m.memory
	if now < s.Deadline {
		if s.Repeats > 0 && now >= s.RepeatAt {
			m.send(PriorityResign, out)
			s.Repeats, s.RepeatAt = s.Repeats-1, now+m.repeatAfter()
		}
		return
	}
	cause := CauseSilence
	switch {
	case s.Resigned:
		cause = CauseResigned
	case now < s.LowerUntil:
		cause = CausePreempts
	}
	m.become(now, cause, out)
}

func (m *Machine) receiveBackup(now time.Duration, r *RouterSnapshot, from netip.Addr, a *Advertisement) {
	s := &m.memory
	if a.Priority == PriorityResign {
		if r.Master.IsValid() && r.Master != from {
			m.counts.Ignored++ // not the master that is followed
			return
		}
		r.Left, s.LeftUntil = from, now+s.MasterInterval
		s.Resigned = true
		s.Deadline = min(s.Deadline, now+m.skew())
		return
	}
	if a.Priority == PriorityReminder {
		m.counts.Ignored++
		return
	}
	if a.Priority < s.Priority {
		if s.PreemptAt == 0 {
			s.PreemptAt = now + m.config.PreemptDelay
		}
		if m.preempts(now, r, from, a.Priority) {
			s.LowerUntil, s.LowerPriority = now+missed*a.Interval+m.skew(), a.Priority
			return
		}
	} else {
		s.PreemptAt = 0
	}
	if r.Master != from {
		r.Master, s.MasterHighest = from, a.Priority
	}
	s.MasterHighest = max(s.MasterHighest, a.Priority)
	s.MasterInterval = a.Interval
	s.LowerUntil, s.Resigned = 0, false
	s.Repeats, s.RepeatAt = 0, 0
	s.Deadline = now + m.down()
}

// preempts reports whether the advertisements of a master of a lower priority are
// discarded, so that the deadline comes.
func (m *Machine) preempts(now time.Duration, r *RouterSnapshot, from netip.Addr, priority uint8) bool {
	s := &m.memory
	if s.GaveUp || m.unready || m.config.AwaitSync && !s.Synchronized || now < s.HoldUntil || now < s.PreemptAt {
		return false
	}
	fell := from == r.Master && s.MasterHighest >= s.Priority && priority < s.Priority
	return !m.config.NoPreempt || s.Priority == PriorityOwner || fell
}

// reconsider follows a master after all whose last advertisement was discarded, if it would
// not be discarded now.
func (m *Machine) reconsider(now time.Duration) {
	s := &m.memory
	if now >= s.LowerUntil {
		return
	}
	if s.LowerPriority >= s.Priority || m.unready || m.config.AwaitSync && !s.Synchronized {
		s.Deadline = max(s.Deadline, s.LowerUntil)
		s.LowerUntil = 0
	}
}

// remind answers a master that may not know that this director was master, too: it left, or
// its process ended, while messages did not pass. Hosts have the hardware address of the
// director that announced last. Any master announces when it sees a lower priority than its
// own. Backups ignore priority 1.
func (m *Machine) remind(a *Advertisement, out *Output) {
	if m.memory.Reminders == 0 || a.Priority <= PriorityReminder {
		return
	}
	m.memory.Reminders--
	m.counts.Reminded++
	m.send(PriorityReminder, out)
}
