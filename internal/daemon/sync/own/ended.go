// SPDX-License-Identifier: Apache-2.0

package own

import (
	"time"

	"imbang/internal/model"
)

// endedSlots is for how many entries that ended a director of a pair has notes, a power of
// two: 10 000 ends in a second for 6 s. A note that is lost lets a copy of an entry that ended
// live until its timeout.
const endedSlots = 1 << 16

// lastSlack is how exactly the time of an entry's last packet is known, as by the data plane.
const lastSlack = 250 * time.Millisecond

// ended are the entries of a director of a pair that ended lately. The other director learns of
// that a moment later, and may have sent what it knew before: streams of two directions
// have no common order. Notes are found by a hash of the entry, and a later one replaces
// an earlier one in its slot.
type ended struct {
	seed  uint64
	slots []endedSlot
}

type endedSlot struct {
	hash uint64
	last time.Duration // its last packet here
}

func newEnded(random func() uint64) *ended {
	return &ended{seed: random(), slots: make([]endedSlot, endedSlots)}
}

func (e *ended) slot(c *model.Connection) (*endedSlot, uint64) {
	h := max(flowHash(e.seed, c), 1) // 0: none
	return &e.slots[h%endedSlots], h
}

// note notes that an entry ended.
func (e *ended) note(now time.Duration, c *model.Connection) {
	s, h := e.slot(c)
	s.hash, s.last = h, now-idle(c)
}

// forget notes that there is an entry again.
func (e *ended) forget(c *model.Connection) {
	if s, h := e.slot(c); s.hash == h {
		s.hash = 0
	}
}

// outdates reports whether an entry that the other director has ended here: a replica, which
// is of what was sent there, or one whose last packet is not later.
func (e *ended) outdates(now time.Duration, c *model.Connection) bool {
	s, h := e.slot(c)
	return s.hash == h && (c.Flags&model.ConnReplica != 0 || now-c.Idle <= s.last+lastSlack)
}

// idle is how long no packet has come for an entry, if its whole timeout is known.
func idle(c *model.Connection) time.Duration {
	if c.Timeout > 0 {
		return max(0, c.Timeout-c.Expires)
	}
	return c.Idle
}
