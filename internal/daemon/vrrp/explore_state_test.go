// SPDX-License-Identifier: Apache-2.0

package vrrp

import (
	"net/netip"
	"time"
)

// A state is encoded as bytes: all of it, with times as steps from now. So states are the
// same if they differ in the time alone, and there are finitely many.

// Times that are not differences.
const (
	noTime   = -100 // 0
	pastTime = -99  // any that has come: only comparisons with now are made
)

// times are those that a machine remembers here. Announcements are not followed, and there
// is one router.
func times(s *Snapshot) [11]*time.Duration {
	return [...]*time.Duration{
		&s.Deadline, &s.LowerUntil, &s.PreemptAt, &s.HoldUntil, &s.LeftUntil, &s.NextAdvert, &s.Lease, &s.AssertAfter, &s.MergeUntil,
		&s.BetterUntil, &s.RepeatAt,
	}
}

func encodeTime(t, now time.Duration) byte {
	switch d := (t - now) / quantum; {
	case t == 0:
		return byte(noTime & 0xff)
	case t < now:
		return byte(pastTime & 0xff)
	case (t-now)%quantum != 0 || d > 120:
		panic(t - now)
	default:
		return byte(d)
	}
}

func decodeTime(b byte) time.Duration {
	switch d := int8(b); d {
	case noTime:
		return 0
	case pastTime:
		return epoch - quantum
	default:
		return epoch + time.Duration(d)*quantum
	}
}

func pack(flags ...bool) (b byte) {
	for i, f := range flags {
		if f {
			b |= 1 << i
		}
	}
	return b
}

func addressByte(a netip.Addr) byte {
	if !a.IsValid() {
		return 0
	}
	return a.As4()[3]
}

func byteAddress(b byte) netip.Addr {
	if b == 0 {
		return netip.Addr{}
	}
	return nodeAddress(int(b) - 1)
}

func appendMessages(b []byte, list []message) []byte {
	b = append(b, byte(len(list)))
	for _, m := range list {
		b = append(b, byte(m.from)|byte(m.to)<<2|byte(m.kind)<<4, m.priority, byte(m.due))
	}
	return b
}

func (e *explorer) encode(s *xstate) []byte {
	b := e.buffer[:0]
	b = append(b, byte(s.cut), byte(s.cut>>8), byte(s.faults), byte(s.two), byte(s.none), byte(s.becomes))
	b = appendMessages(b, s.messages)
	for i := range s.nodes {
		n := &s.nodes[i]
		lease := encodeTime(n.lease, s.now)
		if lease == byte(noTime&0xff) {
			lease = byte(pastTime & 0xff)
		}
		if !n.alive {
			b = append(b, 0, lease)
			continue
		}
		m := &n.machine.memory
		b = append(b, pack(true, n.faulty, m.Faulty, m.Synchronized, m.GaveUp, m.Routers[0].Differs, m.Resigned), lease,
			byte(n.frozen), byte(n.paused), byte(n.sync), byte(n.merge), byte(n.heard), byte(n.mustHear))
		b = appendMessages(b, n.queue)
		gap := max(-100, -(s.now-m.Seen)/quantum)
		b = append(b, byte(m.State), m.Priority, byte(gap), m.Reminders, m.Repeats, m.MasterHighest, m.LowerPriority, addressByte(m.Routers[0].Master), addressByte(m.Routers[0].Left))
		for _, t := range times(m) {
			b = append(b, encodeTime(*t, s.now))
		}
	}
	e.buffer = b
	return b
}

func (e *explorer) decode(k []byte) (s xstate) {
	at := 0
	next := func() byte { at++; return k[at-1] }
	list := func() (list []message) {
		n := int(next())
		if n == 0 {
			return nil
		}
		list = make([]message, n, n+4)
		for i := range list {
			x := next()
			list[i] = message{from: int8(x & 3), to: int8(x >> 2 & 3), kind: int8(x >> 4), priority: next(), due: int8(next())}
		}
		return list
	}
	s.now = epoch
	s.cut = uint16(next()) | uint16(next())<<8
	s.faults, s.two, s.none, s.becomes = int8(next()), int8(next()), int8(next()), int8(next())
	s.messages = list()
	s.nodes = make([]xnode, len(e.bases))
	for i := range s.nodes {
		n := &s.nodes[i]
		flags := next()
		n.machine = e.bases[i]
		n.lease = decodeTime(next())
		if flags == 0 {
			continue
		}
		m := &n.machine.memory
		has := func(bit int) bool { return flags&(1<<bit) != 0 }
		n.alive, n.faulty, m.Faulty, m.Synchronized, m.GaveUp = true, has(1), has(2), has(3), has(4)
		m.Routers = []RouterSnapshot{e.bases[i].memory.Routers[0]}
		m.Routers[0].Differs = has(5)
		m.Resigned = has(6)
		n.frozen, n.paused, n.sync, n.merge, n.heard, n.mustHear = int8(next()), int8(next()), int8(next()), int8(next()), int8(next()), int8(next())
		n.queue = list()
		m.State, m.Priority = State(next()), next()
		m.Seen = epoch + time.Duration(int8(next()))*quantum
		m.Reminders, m.Repeats, m.MasterHighest, m.LowerPriority = next(), next(), next(), next()
		m.Routers[0].Master, m.Routers[0].Left = byteAddress(next()), byteAddress(next())
		for _, t := range times(m) {
			*t = decodeTime(next())
		}
		m.MasterInterval, m.Cadence = interval, 0
		if m.State == Master {
			m.Cadence, m.Held = interval, n.machine.addresses
		}
	}
	return s
}
