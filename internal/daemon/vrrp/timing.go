// SPDX-License-Identifier: Apache-2.0

package vrrp

import "time"

// missed is how many intervals of silence end a master, without the skew (RFC 9568, 6.1).
// It is also how long the lease of an advertisement is, and what a gap between calls must
// not exceed. So no other director can have become master before a lease ends, unless
// advertisements were lost before.
const missed = 3

// reminders is how many advertisements of its successor a former master answers.
const reminders = 2

// PriorityReminder is that of these answers. No master of this package has it.
const PriorityReminder = 1

// PriorityLowest is the effective priority of a director that should not be master: no data
// plane is loaded, or the other one sees more servers.
const PriorityLowest = PriorityReminder + 1

// repeats is how often GiveUp repeats its resignation unless another master is heard. Other
// implementations restart their skew with each, as RFC 9568 says: more would delay them.
const repeats = 3

// repeatAfter is the time between two of them.
func (m *Machine) repeatAfter() time.Duration { return max(MinInterval, m.config.Interval/10) }

// retake is when a director that gave up is master again if no other one is heard. The only
// other director has taken over by then, and advertised twice if it took over at once.
func (m *Machine) retake(now time.Duration) time.Duration {
	if !m.config.Pair {
		return m.memory.Deadline
	}
	return min(m.memory.Deadline, now+m.config.Interval*3/2+m.skew())
}

// step is the skew of one step of priority.
func (m *Machine) step() time.Duration { return m.memory.MasterInterval / 256 }

// skew is Skew_Time (RFC 9568, 6.1), and a jitter of less than one step: it separates
// directors of the same priority and leaves the order of others.
func (m *Machine) skew() time.Duration {
	s := time.Duration(256-int(m.memory.Priority)) * m.memory.MasterInterval / 256
	if step := m.step(); m.config.Random != nil && step > 0 {
		s += time.Duration(m.config.Random() % uint64(step))
	}
	return s
}

// down is Active_Down_Interval (RFC 9568, 6.1).
func (m *Machine) down() time.Duration { return missed*m.memory.MasterInterval + m.skew() }

// patience is the longest gap between two calls after which the state can be kept.
func (m *Machine) patience() time.Duration {
	if m.memory.State == Master {
		return missed * m.memory.Cadence
	}
	return missed * m.memory.MasterInterval
}

// listen sets the deadline of a backup that has heard no master yet.
func (m *Machine) listen(now, hold time.Duration) {
	m.memory.Deadline = now + max(hold, missed*m.memory.MasterInterval) + m.skew()
}

// due sets when Tick has to be called. It is called at least three times in the time that
// awake takes for a gap.
func (m *Machine) due(out *Output) {
	s := &m.memory
	switch s.State {
	case Backup:
		out.Next = min(s.Deadline, s.Seen+m.patience()/3)
		if s.Repeats > 0 {
			out.Next = min(out.Next, s.RepeatAt)
		}
	case Master:
		out.Next = min(s.NextAdvert, s.Seen+m.patience()/3)
		for _, t := range [...]time.Duration{s.AnnounceAt, s.QuietAt, s.MergeUntil, s.BetterUntil} {
			if t != 0 {
				out.Next = min(out.Next, t)
			}
		}
	default:
		out.Next = 0
	}
}
