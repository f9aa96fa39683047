// SPDX-License-Identifier: Apache-2.0

package own

import (
	"time"

	"imbang/internal/model"
)

// walk is the periodic pass over the table that keeps copies from expiring (doc.go).
type walk struct {
	cursor Cursor // nil: between two passes
	passes uint64
	next   time.Duration
	seed   uint64
	tokens bucket // [entries]
}

func (w *walk) end() {
	if w.cursor != nil {
		w.cursor.Close()
		w.cursor = nil
	}
}

// passes is in how many passes an entry is refreshed once: so that it is within half of
// its timeout.
func passes(interval, timeout time.Duration) uint64 {
	return uint64(max(1, timeout/2/interval))
}

// span is the longest time from a packet to the refresh that sends it.
func span(interval, timeout time.Duration) time.Duration {
	return time.Duration(passes(interval, timeout)+1) * interval
}

// margin is by how much a copy lives longer than its entry.
func (w *walk) margin(interval time.Duration, c *model.Connection) time.Duration {
	if c.Timeout <= 0 {
		return 0
	}
	return span(interval, c.Timeout)
}

// due reports whether an entry is to be refreshed in this pass: it is the entry's turn,
// and there was a packet since the last turn.
func (w *walk) due(interval time.Duration, c *model.Connection) bool {
	if c.Timeout <= 0 {
		return true
	}
	if n := passes(interval, c.Timeout); n > 1 && (flowHash(w.seed, c)+w.passes)%n != 0 {
		return false
	}
	return c.Timeout-c.Expires < span(interval, c.Timeout)
}

// refresh goes on with a pass.
func (s *Sender) refresh(now time.Duration, out *Output) {
	w := &s.walk
	if w.cursor == nil {
		if s.config.Table == nil || now < w.next {
			return
		}
		w.next = now + s.config.Walk
		if len(s.peers) == 0 {
			return
		}
		begin := s.config.Table
		if s.config.Refresh != nil {
			begin = s.config.Refresh
		}
		w.cursor = begin()
		w.passes++
	}
	for w.cursor != nil && w.tokens.take(now, chunk) {
		n, err := w.cursor.Next(s.batch)
		for i := range n {
			if w.due(s.config.Walk, &s.batch[i]) {
				s.entry(now, opPut, &s.batch[i], false, out)
				s.counts.Refreshes++
			}
		}
		if err != nil { // the end, or the next pass reads what this one could not
			w.end()
		} else if n == 0 {
			return
		}
	}
}

func (s *Sender) walkDue(now time.Duration) time.Duration {
	switch {
	case s.config.Table == nil:
		return never
	case s.walk.cursor == nil:
		return s.walk.next
	}
	return max(s.walk.tokens.until(now, chunk), now+time.Millisecond)
}
