// SPDX-License-Identifier: Apache-2.0

package own

import (
	"io"
	"time"

	"imbang/internal/model"
)

// walk is the periodic pass over the table that keeps copies from expiring (doc.go). A pass
// of a large table takes longer than Config.Walk; the next one begins at once then.
type walk struct {
	cursor Cursor        // nil: between two passes
	began  time.Duration // the latest pass
	before time.Duration // the one before it
	took   time.Duration // the latest pass that was complete
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

// begin begins a pass.
func (w *walk) begin(now, interval time.Duration) {
	w.before, w.began, w.next = w.began, now, now+interval
}

// interval is the time from one pass to the next one, as far as it is known.
func (w *walk) interval(now, least time.Duration) time.Duration {
	if w.cursor != nil {
		least = max(least, now-w.began)
	}
	return max(least, w.took)
}

// margin is by how much a copy lives longer than its entry: by the longest time from a
// packet to the refresh that sends it, which are half of the timeout and the time between
// two passes. If these take longer than the table's interval, the next ones may even more.
func (w *walk) margin(now, least time.Duration, c *model.Connection) time.Duration {
	if c.Timeout <= 0 {
		return 0
	}
	interval := w.interval(now, least)
	return max(c.Timeout/2, interval) + interval + interval - least
}

// due reports whether an entry is to be refreshed in this pass: it is the entry's turn,
// and there was a packet since the last turn. The turns are half of a timeout apart, and at
// what time the entry's hash chooses. A pass does those since the last pass began.
func (w *walk) due(now time.Duration, c *model.Connection) bool {
	if c.Timeout <= 0 {
		return true
	}
	period := max(c.Timeout/2, 1)
	phase := period - time.Duration(flowHash(w.seed, c)%uint64(period))
	if (w.began+phase-1)/period == (w.before+phase-1)/period {
		return false
	}
	return c.Timeout-c.Expires < period+now-w.before
}

// refresh goes on with a pass.
func (s *Sender) refresh(now time.Duration, out *Output) {
	w := &s.walk
	if w.cursor == nil {
		if s.config.Table == nil || now < w.next {
			return
		}
		w.begin(now, s.config.Walk)
		if len(s.peers) == 0 {
			return
		}
		begin := s.config.Table
		if s.config.Refresh != nil {
			begin = s.config.Refresh
		}
		w.cursor = begin()
	}
	for w.cursor != nil && w.tokens.take(now, chunk) {
		n, err := w.cursor.Next(s.batch)
		for i := range n {
			if s.tells(&s.batch[i]) && w.due(now, &s.batch[i]) {
				s.entry(now, opPut, &s.batch[i], false, out)
				s.counts.Refreshes++
			}
		}
		switch {
		case err == io.EOF:
			w.end()
			w.took = now - w.began
		case err != nil: // the next pass does the turns of this one
			w.end()
			w.began = w.before
		case n == 0:
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
