// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"imbang/internal/model"
)

// maxUnbound bounds the entries that wait for their server: of a few hundred bytes each.
const maxUnbound = 1 << 16

// missingKey is what has to be added for an entry to be entered. It has no server if its
// service is missing.
type missingKey struct {
	protocol model.Protocol
	virtual  netip.AddrPort
	mark     uint32
	server   netip.AddrPort
}

// waiting is an entry without a server.
type waiting struct {
	entry   model.Connection
	expires time.Time
	missing missingKey
}

// unbound keeps entries whose service or server the table does not have.
type unbound struct {
	limit   int
	entries map[model.EntryKey]*waiting
	missing map[missingKey]int // how many entries wait for it
	// earliest is not later than when the next entry expires.
	earliest time.Time
	again    []model.EntryKey // to be retried
}

func newUnbound(limit int) unbound {
	return unbound{limit: limit, entries: map[model.EntryKey]*waiting{}, missing: map[missingKey]int{}}
}

func (u *unbound) len() int { return len(u.entries) }

// supersedes reports whether an entry is kept that has replaced this one: the flow has
// another server, and the record says that its connection is over (ip_vs_proc_conn).
func (u *unbound) supersedes(c *model.Connection) bool {
	if len(u.entries) == 0 || c.Template || c.Flags&model.ConnInactive == 0 {
		return false
	}
	kept := u.entries[c.Key()]
	return kept != nil && kept.entry.Server != c.Server
}

// keep keeps an entry, in the place of an earlier one of its flow; false if there are too
// many.
func (u *unbound) keep(now time.Time, c *model.Connection, noService bool) bool {
	key := c.Key()
	w := u.entries[key]
	if w == nil {
		if len(u.entries) >= u.limit {
			return false
		}
		w = &waiting{}
		u.entries[key] = w
	} else {
		u.found(w.missing)
	}
	w.entry, w.expires = *c, now.Add(c.Expires)
	w.missing = missingKey{c.Protocol, c.Virtual, c.Service.Mark, c.Server}
	if noService {
		w.missing.server = netip.AddrPort{}
	}
	u.missing[w.missing]++
	if len(u.entries) == 1 || w.expires.Before(u.earliest) {
		u.earliest = w.expires
	}
	return true
}

// found counts one entry less that waits.
func (u *unbound) found(k missingKey) {
	if u.missing[k]--; u.missing[k] == 0 {
		delete(u.missing, k)
	}
}

// remove removes the entry of a flow.
func (u *unbound) remove(c *model.Connection) bool {
	if len(u.entries) == 0 {
		return false
	}
	key := c.Key()
	w := u.entries[key]
	if w == nil {
		return false
	}
	u.found(w.missing)
	delete(u.entries, key)
	return true
}

// expire removes what has expired, and says how much that was.
func (u *unbound) expire(now time.Time) (n int) {
	if len(u.entries) == 0 || now.Before(u.earliest) {
		return 0
	}
	first := true
	for key, w := range u.entries {
		if !w.expires.After(now) {
			u.found(w.missing)
			delete(u.entries, key)
			n++
		} else if first || w.expires.Before(u.earliest) {
			u.earliest, first = w.expires, false
		}
	}
	return n
}

func (u *unbound) retryAll() {
	u.again = u.again[:0]
	for key := range u.entries {
		u.again = append(u.again, key)
	}
}

// retry appends entries to be retried until there are n, with what is left of their time.
func (u *unbound) retry(now time.Time, n int, to []model.Connection) []model.Connection {
	for len(to) < n && len(u.again) > 0 {
		key := u.again[len(u.again)-1]
		u.again = u.again[:len(u.again)-1]
		w := u.entries[key]
		if w == nil || !w.expires.After(now) {
			continue // entered or replaced meanwhile, or about to be removed
		}
		c := w.entry
		c.Expires = w.expires.Sub(now)
		if !c.Template { // whose timeout is its service's
			c.Timeout = c.Expires
		}
		to = append(to, c)
	}
	if len(u.again) == 0 {
		u.again = nil
	}
	return to
}

// Missing is a service or a server that entries of the master have and the table does not.
type Missing struct {
	Service string         // as 10.0.0.1:80/tcp or fwmark 3
	Server  netip.AddrPort // not valid: the whole service is missing
	Entries int            // that wait for it
}

// String names the server, or the service if that is missing as a whole.
func (m Missing) String() string {
	if m.Server.IsValid() {
		return fmt.Sprintf("server %s of %s", m.Server, m.Service)
	}
	return "service " + m.Service
}

// mostReported bounds a report: foreign entries can each miss a server of their own.
const mostReported = 1000

// report lists what is missing, most frequent first, at most mostReported of it. Names are
// made of those alone, since messages wait meanwhile.
func (u *unbound) report() []Missing {
	type one struct {
		missingKey
		entries int
	}
	order := func(a, b one) int { return cmp.Or(b.entries-a.entries, a.compare(b.missingKey)) }
	var most []one
	full := false // then the last one is that which others have to precede
	for k, n := range u.missing {
		m := one{k, n}
		if full && order(m, most[mostReported-1]) > 0 {
			continue
		}
		if most = append(most, m); len(most) == 2*mostReported {
			slices.SortFunc(most, order)
			most, full = most[:mostReported], true
		}
	}
	slices.SortFunc(most, order)
	most = most[:min(len(most), mostReported)]
	list := make([]Missing, len(most))
	for i, m := range most {
		list[i] = Missing{m.service(), m.server, m.entries}
	}
	slices.SortFunc(list, func(a, b Missing) int {
		return cmp.Or(b.Entries-a.Entries, strings.Compare(a.Service, b.Service), a.Server.Compare(b.Server))
	})
	return list
}

// compare orders by addresses, then marks.
func (k missingKey) compare(o missingKey) int {
	return cmp.Or(k.virtual.Compare(o.virtual), cmp.Compare(k.protocol, o.protocol), cmp.Compare(k.mark, o.mark), k.server.Compare(o.server))
}

// service names the service that an entry is of. A connection's mark need not be that of a
// service.
func (k missingKey) service() string {
	byAddress := model.AddrKey(k.protocol, k.virtual).String()
	if k.mark == 0 {
		return byAddress
	}
	byMark := model.MarkKey(k.mark, model.FamilyOf(k.virtual.Addr())).String()
	if k.protocol == 0 {
		return byMark
	}
	return byMark + " or " + byAddress
}
