// SPDX-License-Identifier: Apache-2.0

package vrrp

import (
	"errors"
	"slices"
	"time"
)

// slowSteps is how many advertisements announce a longer interval at the shorter one. The
// backups expect the shorter one until one of them arrives.
const slowSteps = 4

// Reconfigure replaces the configuration, without a transition. A master takes and releases
// the addresses that are different. Config.Priority is the effective one.
func (m *Machine) Reconfigure(now time.Duration, config Config, out *Output) error {
	if err := config.complete(); err != nil {
		return err
	}
	m.awake(now, out)
	m.replace(now, config, out)
	m.due(out)
	return nil
}

func (m *Machine) replace(now time.Duration, config Config, out *Output) {
	m.configure(config)
	m.memory.TieRouter, m.memory.TieUntil, m.memory.Bridge = 0, 0, 0
	priority := m.memory.Priority
	m.memory.Priority = config.Priority
	switch m.memory.State {
	case Backup:
		if priority != config.Priority {
			m.reconsider(now)
		}
	case Master:
		m.replaceMaster(now, out)
	default:
		m.memory.MasterInterval = config.Interval
	}
}

func (m *Machine) replaceMaster(now time.Duration, out *Output) {
	s := &m.memory
	added, removed := without(m.addresses, s.Held), without(s.Held, m.addresses)
	s.Held = m.addresses
	m.slowDown()
	if s.MergeUntil == 0 {
		s.MasterInterval = m.config.Interval
	}
	m.advertise(now, out)
	if len(removed) > 0 {
		out.add(Action{Kind: ActionRelease, Addresses: removed})
	}
	if len(added) > 0 {
		out.add(Action{Kind: ActionTake, Addresses: added, Accept: m.config.Accept})
		out.add(Action{Kind: ActionAnnounce, Addresses: added, Repeat: m.config.Announcements})
		m.counts.Announced++
		s.AnnounceAt, s.Announced = now+m.config.AnnounceAgain, false
	}
}

// slowDown begins to announce a longer interval, if it is one.
func (m *Machine) slowDown() {
	m.memory.Slow = 0
	if m.interval() > m.memory.Cadence {
		m.memory.Slow = slowSteps
	}
}

// interval is the one that a master advertises.
func (m *Machine) interval() time.Duration { return max(m.config.Interval, m.memory.Bridge) }

// Bridge has a master advertise an interval that is longer than the configured one, so that
// others wait for three of it while this process cannot call, as when another program goes
// on (Restore, which ends it). 0 ends it. It reports whether the pause can begin: the longer
// interval was advertised several times, as others expect the shorter one until they hear
// of it. It has to be called again until then.
func (m *Machine) Bridge(now, interval time.Duration, out *Output) (ready bool) {
	m.awake(now, out)
	s := &m.memory
	if s.State == Master && s.Bridge != interval {
		s.Bridge = interval
		m.slowDown()
		m.advertise(now, out)
	}
	m.due(out)
	return s.State != Master || s.Slow == 0 && s.Cadence == m.interval()
}

// Snapshot is what Restore needs. The machine must not be used any more then.
func (m *Machine) Snapshot() Snapshot {
	s := m.memory
	s.Routers, s.Held = slices.Clone(s.Routers), slices.Clone(s.Held)
	return s
}

// Restore goes on where another process was, without a transition, and with a configuration
// that may be different. A handover that took longer than three intervals, those of Bridge,
// is a stall.
func Restore(now time.Duration, config Config, s Snapshot, out *Output) (*Machine, error) {
	m, err := New(config)
	if err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	if s.Seen > now { // no time of it can be compared
		return nil, errors.New("the snapshot is of another clock, as that of an earlier start of the machine")
	}
	m.memory = s
	m.memory.Routers, m.memory.Held = slices.Clone(s.Routers), slices.Clone(s.Held)
	m.awake(now, out)
	m.replace(now, m.config, out)
	m.due(out)
	return m, nil
}

// check refuses what no machine wrote.
func (s *Snapshot) check() error {
	if s.State > Master || s.Priority == 0 || s.MasterInterval < MinInterval || s.MasterInterval > MaxInterval {
		return errors.New("the snapshot is damaged")
	}
	if s.Bridge < 0 || s.Bridge > MaxInterval {
		return errors.New("the snapshot is damaged")
	}
	if s.State == Master && (s.Cadence < MinInterval || s.Cadence > MaxInterval || s.NextAdvert == 0) {
		return errors.New("the snapshot of a master is damaged")
	}
	return nil
}
