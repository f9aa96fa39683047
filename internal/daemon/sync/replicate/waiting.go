// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"time"

	"imbang/internal/model"
)

const (
	// mostWaiting bounds the entries that wait: of a few hundred bytes each.
	mostWaiting = 1 << 16
	// retryChunk is how many are tried at a time, since messages wait meanwhile, and retryPause
	// the time between two.
	retryChunk = 1024
	retryPause = 5 * time.Millisecond
	// mostOthers is how many are tried in a second that no change of the services helps.
	mostOthers = 4096
)

// waiting keeps entries whose service, server or template the table does not have, or no
// room for, until it has, or their time is over.
type waiting struct {
	entries  map[model.EntryKey]*waitingEntry
	overflow uint64           // entries that found no room here since the last bulk transfer
	queue    []model.EntryKey // to be tried again
	earliest time.Time        // not later than when the next entry expires
	batch    []model.Connection
}

type waitingEntry struct {
	conn     model.Connection
	expires  time.Time
	services bool // it waits for a service or a server
}

// keep reports whether there was room.
func (w *waiting) keep(now time.Time, c *model.Connection, services bool) bool {
	key := c.Key()
	e := w.entries[key]
	if e == nil {
		if len(w.entries) >= mostWaiting {
			w.overflow++
			return false
		}
		if w.entries == nil {
			w.entries = map[model.EntryKey]*waitingEntry{}
		}
		e = &waitingEntry{}
		w.entries[key] = e
	}
	e.conn, e.expires, e.services = *c, now.Add(c.Expires), services
	if c.Control != nil { // the machine's memory is used again
		control := *c.Control
		e.conn.Control = &control
	}
	if len(w.entries) == 1 || e.expires.Before(w.earliest) {
		w.earliest = e.expires
	}
	return true
}

func (w *waiting) remove(c *model.Connection) {
	if len(w.entries) > 0 {
		delete(w.entries, c.Key())
	}
}

// clear removes all.
func (w *waiting) clear() { *w = waiting{batch: w.batch} }

// lacking is how many entries of the master were not entered; those that found no room
// count each time that they came.
func (w *waiting) lacking() uint64 { return uint64(len(w.entries)) + w.overflow }

// expire removes those whose time is over.
func (w *waiting) expire(now time.Time) {
	if len(w.entries) == 0 || now.Before(w.earliest) {
		return
	}
	first := true
	for key, e := range w.entries {
		if !e.expires.After(now) {
			delete(w.entries, key)
		} else if first || e.expires.Before(w.earliest) {
			w.earliest, first = e.expires, false
		}
	}
}

// retryAll has all tried again, templates first.
func (w *waiting) retryAll() {
	w.queue = w.queue[:0]
	for _, template := range []bool{false, true} { // the last one is tried first
		for key := range w.entries {
			if key.Template == template {
				w.queue = append(w.queue, key)
			}
		}
	}
}

// retryOthers has some tried again that do not wait for services, unless others are to be.
func (w *waiting) retryOthers() {
	if len(w.queue) > 0 {
		return
	}
	for key, e := range w.entries {
		if len(w.queue) == mostOthers {
			return
		}
		if !e.services {
			w.queue = append(w.queue, key)
		}
	}
}

// again are the next ones to be tried, with the time that they have left. They wait until
// they are removed. It is valid until the next call.
func (w *waiting) again(now time.Time) []model.Connection {
	w.batch = w.batch[:0]
	for len(w.queue) > 0 && len(w.batch) < retryChunk {
		last := len(w.queue) - 1
		e := w.entries[w.queue[last]]
		w.queue = w.queue[:last]
		if e == nil || !e.expires.After(now) {
			continue
		}
		w.batch = append(w.batch, e.conn)
		one := &w.batch[len(w.batch)-1]
		left := e.expires.Sub(now)
		one.Idle += one.Expires - left
		one.Expires = left
	}
	return w.batch
}
