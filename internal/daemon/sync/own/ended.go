// SPDX-License-Identifier: Apache-2.0

package own

import (
	"time"

	"imbang/internal/model"
)

// A director of a pair has notes of endedSets * endedWays entries that ended: of 10 000 ends in
// a second for about 5 s. A note that is lost lets a copy of an entry that ended live until its
// timeout. endedSets is a power of two.
const (
	endedSets = 1 << 13
	endedWays = 8
)

// lastSlack is how exactly the time of an entry's last packet is known, as by the data plane.
const lastSlack = 250 * time.Millisecond

// ended are the entries of a director of a pair that ended lately. The other director learns of
// that a moment later, and may have sent what it knew before: streams of two directions
// have no common order. Notes are found by a hash of the entry, in a set in which the oldest
// one makes room.
type ended struct {
	seed uint64
	sets [][endedWays]endedNote // each from the latest to the oldest
}

type endedNote struct {
	hash uint64        // 0: none
	last time.Duration // its last packet here
}

func newEnded(random func() uint64) *ended {
	return &ended{seed: random(), sets: make([][endedWays]endedNote, endedSets)}
}

// find is the set of an entry, its hash, and its note; nil if there is none.
func (e *ended) find(c *model.Connection) (set *[endedWays]endedNote, h uint64, note *endedNote) {
	h = max(flowHash(e.seed, c), 1)
	set = &e.sets[h%endedSets]
	for i := range set {
		if set[i].hash == h {
			return set, h, &set[i]
		}
	}
	return set, h, nil
}

// note notes that an entry ended.
func (e *ended) note(now time.Duration, c *model.Connection) {
	set, h, known := e.find(c)
	if known == nil {
		copy(set[1:], set[:])
		known = &set[0]
	}
	*known = endedNote{h, now - idle(c)}
}

// forget notes that there is an entry again.
func (e *ended) forget(c *model.Connection) {
	if _, _, known := e.find(c); known != nil {
		known.hash = 0
	}
}

// outdates reports whether an entry that the other director has ended here: a replica, which
// is of what was sent there, or one whose last packet is not later.
func (e *ended) outdates(now time.Duration, c *model.Connection) bool {
	_, _, known := e.find(c)
	return known != nil && (c.Flags&model.ConnReplica != 0 || now-c.Idle <= known.last+lastSlack)
}

// unknownIdle says that the time of an entry's last packet is not known: it is earlier than any.
const unknownIdle = longestExpiry

// pairIdle is idle, or unknownIdle: an entry does not end a timeout after its last packet if
// timeouts were shortened since, or it was told otherwise when to end.
func pairIdle(c *model.Connection) time.Duration {
	if c.Timeout > 0 && c.Expires > c.Timeout+lastSlack {
		return unknownIdle
	}
	return idle(c)
}

// idle is how long no packet has come for an entry, if its whole timeout is known.
func idle(c *model.Connection) time.Duration {
	if c.Timeout > 0 {
		return max(0, c.Timeout-c.Expires)
	}
	return c.Idle
}
