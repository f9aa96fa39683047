// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"time"

	"imbang/internal/model"
)

// mostWaiting bounds the entries that wait: of a few hundred bytes each.
const mostWaiting = 1 << 16

// waiting keeps entries whose service, server or template the table does not have, until
// it has, or their time is over.
type waiting struct {
	entries map[model.EntryKey]waitingEntry
	batch   []model.Connection
}

type waitingEntry struct {
	conn    model.Connection
	expires time.Time
}

// keep reports whether there was room.
func (w *waiting) keep(now time.Time, c *model.Connection) bool {
	key := c.Key()
	if _, ok := w.entries[key]; !ok && len(w.entries) >= mostWaiting {
		return false
	}
	if w.entries == nil {
		w.entries = map[model.EntryKey]waitingEntry{}
	}
	kept := *c
	if c.Control != nil { // the machine's memory is used again
		control := *c.Control
		kept.Control = &control
	}
	w.entries[key] = waitingEntry{kept, now.Add(c.Expires)}
	return true
}

func (w *waiting) remove(c *model.Connection) {
	if len(w.entries) > 0 {
		delete(w.entries, c.Key())
	}
}

// again are all that are not over, with the time that they have left: templates first. They
// do not wait any more. It is valid until the next call.
func (w *waiting) again(now time.Time) []model.Connection {
	w.batch = w.batch[:0]
	for _, template := range []bool{true, false} {
		for key, e := range w.entries {
			if key.Template != template {
				continue
			}
			if e.conn.Expires = e.expires.Sub(now); e.conn.Expires > 0 {
				w.batch = append(w.batch, e.conn)
			}
		}
	}
	clear(w.entries)
	return w.batch
}
