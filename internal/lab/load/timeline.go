// SPDX-License-Identifier: Apache-2.0

package load

import (
	"math"
	"time"
)

// Timeline is when which server's replies were complete. It begins with the
// counted window and ends with it or with the last reply, so that a server
// that answers no more shows zeros and not the end of its list.
type Timeline struct {
	SlotSeconds float64 `json:"slot_seconds"`
	// Replies of each server by slot. All lists are of one length, and their
	// sums are Result.PerServer. The last slot may be cut short.
	Replies map[string][]int `json:"replies"`
}

// A window is divided into aimedSlots of at least leastSlot. What takes longer
// than mostSlots, such as a closed loop that ends nobody knows when, makes
// them twice as wide.
const (
	mostSlots  = 50
	aimedSlots = 40
	leastSlot  = time.Millisecond
	firstSlot  = 10 * time.Millisecond // where no end is known
)

// slots counts one client's replies by time and server. Counting costs a
// division and an addition; memory is taken when a server is first seen.
type slots struct {
	from   int64 // ns from the run's beginning
	width  int64 // ns
	counts []int // mostSlots for each server, by index of names
}

func newSlots(p Plan) slots {
	s := slots{from: int64(p.Warmup), width: int64(firstSlot)}
	if p.Concurrency == 0 || p.Duration > 0 {
		// Whole milliseconds read better than exact fortieths.
		each := math.Ceil(float64(nominalEnd(p)-s.from) / aimedSlots / float64(leastSlot))
		s.width = int64(max(each, 1)) * int64(leastSlot)
	}
	return s
}

// count enters a reply that ended at now.
func (s *slots) count(server int32, now int64) {
	for int(server) >= len(s.counts)/mostSlots {
		s.counts = append(s.counts, make([]int, mostSlots)...)
	}
	slot := max(0, now-s.from) / s.width
	for slot >= mostSlots {
		s.widen()
		slot /= 2
	}
	s.counts[int(server)*mostSlots+int(slot)]++
}

// widen makes slots twice as wide.
func (s *slots) widen() {
	s.width *= 2
	for first := 0; first < len(s.counts); first += mostSlots {
		row := s.counts[first : first+mostSlots]
		for i := range row {
			n := 0
			if 2*i < mostSlots {
				n = row[2*i] + row[2*i+1]
			}
			row[i] = n
		}
	}
}

// timeline puts the clients' counts together; nil if no server was told.
func (t *team) timeline(seconds float64) *Timeline {
	width := int64(0)
	for _, w := range t.workers {
		width = max(width, w.tally.slots.width)
	}
	length := min(max(1, int(math.Ceil(seconds*1e9/float64(width)))), mostSlots)
	out := &Timeline{SlotSeconds: float64(width) / 1e9, Replies: map[string][]int{}}
	for _, w := range t.workers {
		s := &w.tally.slots
		for s.width < width {
			s.widen()
		}
		for i := range len(s.counts) / mostSlots {
			out.enter(w.names.list[i], s.counts[i*mostSlots:(i+1)*mostSlots], length)
		}
	}
	if len(out.Replies) == 0 {
		return nil
	}
	return out
}

// enter adds one client's counts of a server. What follows the end, by a
// rounding of it, is of the last slot.
func (t *Timeline) enter(server string, counts []int, length int) {
	list := t.Replies[server]
	if list == nil {
		list = make([]int, length)
		t.Replies[server] = list
	}
	for i, n := range counts {
		list[min(i, length-1)] += n
	}
}
