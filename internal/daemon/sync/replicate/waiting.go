// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"cmp"
	"errors"
	"iter"
	"maps"
	"net/netip"
	"slices"
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
	missing  map[pair]int      // services and servers, with the number of entries that wait for each
	transfer uint64            // number of the latest transfer of the whole table that has begun
	deleted  map[pair]struct{} // of missing: the other director does not have them either
	aside    int               // entries that do not count as lacking
}

type waitingEntry struct {
	conn     model.Connection
	expires  time.Time
	missing  pair   // the service or server that it waits for; the zero one: for something else
	transfer uint64 // after whose beginning it came last
	gone     bool   // the other director of a pair does not have it any more
}

// services reports whether it waits for a service or a server.
func (e *waitingEntry) services() bool { return e.missing != pair{} }

// keep has an entry wait that the table could not have at a time, for a reason. It reports whether
// there was room. retried: it is one of again.
func (w *waiting) keep(at time.Time, c *model.Connection, reason error, retried bool) bool {
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
	e.conn, e.expires = *c, at.Add(c.Expires)
	w.change(e, func() {
		w.lacks(e, missingOf(c, reason))
		if !retried {
			e.transfer, e.gone = w.transfer, false
		}
	})
	if c.Control != nil { // the machine's memory is used again
		control := *c.Control
		e.conn.Control = &control
	}
	if len(w.entries) == 1 || e.expires.Before(w.earliest) {
		w.earliest = e.expires
	}
	return true
}

// missingOf is the service or server whose absence is a reason; the zero one if it is another one.
func missingOf(c *model.Connection, reason error) pair {
	switch {
	case errors.Is(reason, model.ErrNoService):
		return pair{service: c.Service}
	case errors.Is(reason, model.ErrNoServer):
		return pair{c.Service, c.RealServer}
	}
	return pair{}
}

// lacks notes what an entry waits for.
func (w *waiting) lacks(e *waitingEntry, p pair) {
	if e.services() {
		if w.missing[e.missing]--; w.missing[e.missing] == 0 {
			delete(w.missing, e.missing)
		}
	}
	if e.missing = p; e.services() {
		if w.missing == nil {
			w.missing = map[pair]int{}
		}
		w.missing[p]++
	}
}

func (w *waiting) remove(c *model.Connection) {
	if len(w.entries) > 0 {
		w.drop(c.Key())
	}
}

func (w *waiting) drop(key model.EntryKey) {
	e := w.entries[key]
	if e == nil {
		return
	}
	w.change(e, func() {
		w.lacks(e, pair{})
		e.gone = false
	})
	delete(w.entries, key)
}

// change changes an entry, and counts it if it does not count as lacking then.
func (w *waiting) change(e *waitingEntry, do func()) {
	if w.isAside(e) {
		w.aside--
	}
	do()
	if w.isAside(e) {
		w.aside++
	}
}

// isAside reports whether an entry waits, but does not count as lacking: the other director does
// not have it, or has deleted its server or service, too.
func (w *waiting) isAside(e *waitingEntry) bool {
	_, deleted := w.deleted[e.missing]
	return e.gone || deleted
}

// noteDeleted notes what the other director does not have either of what entries wait for. Such
// entries wait still: a server that is added again has its connections again.
func (w *waiting) noteDeleted(isDeleted func(pair) bool) {
	deleted := map[pair]struct{}{}
	for p := range w.missing {
		if isDeleted(p) {
			deleted[p] = struct{}{}
		}
	}
	if maps.Equal(deleted, w.deleted) {
		return
	}
	w.deleted, w.aside = deleted, 0
	for _, e := range w.entries {
		if w.isAside(e) {
			w.aside++
		}
	}
}

// clear removes all.
func (w *waiting) clear() { *w = waiting{batch: w.batch, transfer: w.transfer} }

// whole notes that a pair's transfer is complete which has all that the other director has had
// packets of. An entry that did not come with it ended while that director was out of reach. It
// waits still: if that director has lost its table, connections of the entry may go on here.
// Replicas of that director need not come again.
func (w *waiting) whole() {
	for _, e := range w.entries {
		if e.transfer < w.transfer && e.conn.Flags&model.ConnReplica == 0 {
			w.change(e, func() { e.gone = true })
		}
	}
}

// lacking is how many entries of the master were not entered; those that found no room
// count each time that they came.
func (w *waiting) lacking() uint64 { return uint64(len(w.entries)-w.aside) + w.overflow }

// lackedPairs are the services and servers that entries wait for and the other director has, with the
// number of entries.
func (w *waiting) lackedPairs() iter.Seq2[pair, int] {
	return func(yield func(pair, int) bool) {
		for p, n := range w.missing {
			if _, deleted := w.deleted[p]; !deleted && !yield(p, n) {
				return
			}
		}
	}
}

// Missing is a service or server that entries wait for.
type Missing struct {
	Service string
	Server  string // empty: the service itself is missing
	Entries int    // that wait for it
}

// mostMissing are reported.
const mostMissing = 1000

// lack is what entries wait for, the most frequent first.
func (w *waiting) lack() (list []Missing) {
	for p, n := range w.lackedPairs() {
		m := Missing{Service: p.service.String(), Entries: n}
		if p.server.IsValid() {
			m.Server = p.server.String()
		}
		list = append(list, m)
	}
	slices.SortFunc(list, func(x, y Missing) int {
		return cmp.Or(cmp.Compare(y.Entries, x.Entries), cmp.Compare(x.Service, y.Service), cmp.Compare(x.Server, y.Server))
	})
	return list[:min(len(list), mostMissing)]
}

// reason is why entries wait, as far as an operator can change it.
func (w *waiting) reason() string {
	var names []string
	for p := range w.lackedPairs() {
		names = append(names, p.String())
	}
	slices.Sort(names) // not by numbers: the text of an alarm stays the same
	if len(names) == 0 {
		return "the table is full, or what they depend on is not in it"
	}
	return "missing here: " + some(names)
}

// String is as differences of the configurations name it.
func (p pair) String() string {
	if p.server == (netip.AddrPort{}) {
		return "service " + p.service.String()
	}
	return "service " + p.service.String() + " server " + p.server.String()
}

// expire removes those whose time is over.
func (w *waiting) expire(now time.Time) {
	if len(w.entries) == 0 || now.Before(w.earliest) {
		return
	}
	first := true
	for key, e := range w.entries {
		if !e.expires.After(now) {
			w.drop(key)
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
		if !e.services() {
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
