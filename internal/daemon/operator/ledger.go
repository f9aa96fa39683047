// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Version orders what was ordered of one server, on any director of a pair, by a hybrid logical
// clock: an order's time is later than that of each order that its director knew of, also if that
// one's clock is ahead. Of two orders that were given while neither director had the other's the one
// with the later clock wins, then the origin. It never changes once it is made, so all directors
// come to the same.
type Version struct {
	Stamp  int64  `json:"stamp"`  // ms since 1970 by the clock of the origin, or 1 ms after the latest one known
	Origin string `json:"origin"` // the director that the order was given on
}

// Compare orders versions.
func (v Version) Compare(o Version) int {
	return cmp.Or(cmp.Compare(v.Stamp, o.Stamp), strings.Compare(v.Origin, o.Origin))
}

// maxAhead is by how much a time may be ahead of the clock: a damaged one, or that of a director
// whose clock was wrong, must not make its order win for ever.
const maxAhead = 24 * time.Hour

// maxStamp is the latest time, of the year 10895: later ones are possible.
const maxStamp = 1 << 48

// Entry is what was ordered of a server last. Of a server of which nothing is ordered any more
// it is kept: another director may still have the former order.
type Entry struct {
	State
	Version
}

// Ledger has the entries of all servers of which something was ordered ever.
type Ledger struct {
	Origin  string
	Entries map[ServerID]Entry
}

// NewLedger is an empty one with an origin of its own.
func NewLedger() *Ledger {
	origin := make([]byte, 8)
	_, _ = rand.Read(origin) // never fails
	return &Ledger{Origin: hex.EncodeToString(origin), Entries: map[ServerID]Entry{}}
}

// Book is what is ordered now.
func (l *Ledger) Book() Book {
	b := Book{}
	for id, e := range l.Entries {
		if !e.None() {
			b[id] = e.State
		}
	}
	return b
}

// Copy is a ledger of the same entries.
func (l *Ledger) Copy() *Ledger {
	next := &Ledger{Origin: l.Origin, Entries: make(map[ServerID]Entry, len(l.Entries))}
	for id, e := range l.Entries {
		next.Entries[id] = e
	}
	return next
}

// Order enters an order that was given on this director.
func (l *Ledger) Order(id ServerID, s State, now time.Time) {
	stamp := max(now.UnixMilli(), 1) // 0 is that of a file of a former version
	for _, e := range l.Entries {
		if e.Stamp <= now.Add(maxAhead).UnixMilli() {
			stamp = max(stamp, e.Stamp+1)
		}
	}
	if former, known := l.Entries[id]; known { // whatever its time is: this order is the later one
		stamp = max(stamp, former.Stamp+1)
	}
	l.Entries[id] = Entry{s, Version{Stamp: stamp, Origin: l.Origin}}
}

// Merge takes in another director's entries that are newer, and returns of which servers.
// Its times are moved by a shift, which is 0 if the two clocks agree.
func (l *Ledger) Merge(o *Ledger, shift time.Duration) (changed []ServerID) {
	for _, id := range o.ids() {
		e := o.Entries[id]
		mine, known := l.Entries[id]
		if known && e.Compare(mine.Version) <= 0 {
			continue
		}
		e.State = e.moved(shift)
		l.Entries[id] = e
		if !mine.same(e.State) {
			changed = append(changed, id)
		}
	}
	return changed
}

// maxEnded bounds the entries of servers that are not configured and of which nothing is
// ordered.
const maxEnded = 1000

// Prune drops entries that say nothing, of servers that are not configured, but for the last
// ones: a director that was down for long may bring an order back of which it has none.
func (l *Ledger) Prune(configured func(ServerID) bool) {
	var ended []ServerID
	for id, e := range l.Entries {
		if e.None() && !configured(id) {
			ended = append(ended, id)
		}
	}
	slices.SortFunc(ended, func(a, b ServerID) int {
		return cmp.Or(cmp.Compare(l.Entries[b].Stamp, l.Entries[a].Stamp), a.Compare(b))
	})
	for _, id := range ended[min(len(ended), maxEnded):] {
		delete(l.Entries, id)
	}
}

// Digest identifies the versions of all entries.
func (l *Ledger) Digest() string {
	sum := sha256.New()
	for _, id := range l.ids() {
		v := l.Entries[id].Version
		fmt.Fprintf(sum, "%s %d %s\n", id, v.Stamp, v.Origin)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// moved is a state by another clock.
func (s State) moved(shift time.Duration) State {
	if shift == 0 {
		return s
	}
	if s.Drain != nil {
		d := *s.Drain
		d.At = d.At.Add(shift)
		if !d.Deadline.IsZero() {
			d.Deadline = d.Deadline.Add(shift)
		}
		s.Drain = &d
	}
	if s.Maintenance != nil {
		o := *s.Maintenance
		o.At = o.At.Add(shift)
		s.Maintenance = &o
	}
	if s.Weight != nil {
		w := *s.Weight
		w.At = w.At.Add(shift)
		s.Weight = &w
	}
	return s
}

// same reports whether two states order the same.
func (s State) same(o State) bool {
	if (s.Drain == nil) != (o.Drain == nil) || (s.Maintenance == nil) != (o.Maintenance == nil) || (s.Weight == nil) != (o.Weight == nil) {
		return false
	}
	return (s.Drain == nil || s.Drain.Order.same(o.Drain.Order) && s.Drain.Deadline.Equal(o.Drain.Deadline)) &&
		(s.Maintenance == nil || s.Maintenance.same(*o.Maintenance)) &&
		(s.Weight == nil || s.Weight.Order.same(o.Weight.Order) && s.Weight.Weight == o.Weight.Weight)
}

func (o Order) same(p Order) bool { return o.By == p.By && o.Reason == p.Reason && o.At.Equal(p.At) }

// Words say what is ordered, for an event.
func (s State) Words() string {
	var words []string
	if s.Maintenance != nil {
		words = append(words, "maintenance: no new connections and no checks")
	}
	if s.Drain != nil {
		words = append(words, "drain")
	}
	if s.Weight != nil {
		words = append(words, fmt.Sprintf("weight %d", s.Weight.Weight))
	}
	if words == nil {
		return "enable: all orders end"
	}
	return strings.Join(words, ", ")
}

// By is the user that gave the latest of the orders.
func (s State) By() string { return s.last().By }

func (s State) last() (last Order) {
	for _, o := range s.orders() {
		if last.By == "" || o.At.After(last.At) {
			last = *o
		}
	}
	return last
}

func (s State) orders() (all []*Order) {
	if s.Drain != nil {
		all = append(all, &s.Drain.Order)
	}
	if s.Maintenance != nil {
		all = append(all, s.Maintenance)
	}
	if s.Weight != nil {
		all = append(all, &s.Weight.Order)
	}
	return all
}
