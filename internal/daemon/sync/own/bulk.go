// SPDX-License-Identifier: Apache-2.0

package own

import (
	"encoding/binary"
	"io"
	"slices"
	"time"
)

const (
	chunk     = 256         // entries that are read from the table at a time
	burst     = 32          // datagrams, the least that a bulk transfer sends at once
	bulkAgain = time.Second // from an error of the table to the next pass
	// bulkSilence is for how long a receiver of a transfer may be silent: it holds up the
	// others. It acknowledges each 20 ms, but for pauses of its director.
	bulkSilence = 2 * time.Second
	never       = 10 * 365 * 24 * time.Hour
)

// bulk is a transfer of the whole table to the receivers that requested it. Its entries
// are numbered with all others: what was deleted before an entry was read precedes it, and
// what happens to it later follows.
type bulk struct {
	with   []*peer // empty: none is running
	start  uint64  // number of its first datagram
	all    bool    // of a pair: with replicas
	cursor Cursor
	tokens bucket // [datagrams]
	again  time.Duration
}

// end ends the transfer that runs, if one does.
func (b *bulk) end() {
	b.with = nil
	if b.cursor != nil {
		b.cursor.Close()
		b.cursor = nil
	}
}

// pump sends as much of a bulk transfer as window and rate allow.
func (s *Sender) pump(now time.Duration, out *Output) {
	if s.config.Table == nil {
		return
	}
	if len(s.bulk.with) == 0 && now >= s.bulk.again {
		s.beginBulk(now, out)
	}
	for s.bulkOpen(now) {
		n, err := s.bulk.cursor.Next(s.batch)
		before := s.counts.Datagrams
		for i := range n {
			if s.bulk.all || s.tells(&s.batch[i]) {
				s.entry(now, opPut, &s.batch[i], true, out)
			}
		}
		switch {
		case err == io.EOF:
			s.room(now, 9, true, out)
			s.open = binary.BigEndian.AppendUint64(append(s.open, opBulkEnd), s.bulk.start)
			s.flush(now, out)
			s.bulk.end()
		case err != nil:
			for _, p := range s.bulk.with {
				p.served--
			}
			s.bulk.end()
			s.bulk.again = now + bulkAgain
		case n == 0:
			return
		}
		s.bulk.tokens.level -= float64(s.counts.Datagrams - before)
	}
}

// beginBulk begins one, if a receiver requests it.
func (s *Sender) beginBulk(now time.Duration, out *Output) {
	if !s.wanted(now) {
		return
	}
	s.flush(now, out)
	s.bulk.start, s.bulk.all = s.store.next, false
	s.open = appendHeader(s.open, header{kind: kindBulkStart, group: s.config.Group, session: s.session, pair: s.config.pair})
	for _, p := range s.peers {
		if p.asks(now) {
			p.served, p.start, p.acked, p.synced = p.request, s.bulk.start, s.bulk.start-1, false
			s.open = participant{p.id, p.request}.append(s.open)
			s.bulk.with = append(s.bulk.with, p)
			s.bulk.all = s.bulk.all || p.all
		}
	}
	if s.bulk.all {
		s.open[5] |= bulkAll // of the header
	}
	s.flush(now, out)
	s.counts.Bulks++
	s.announce(now, out)
	s.bulk.cursor = s.config.Table()
}

// asks reports whether a receiver waits for a transfer, and is there.
func (p *peer) asks(now time.Duration) bool { return p.wants() && now-p.heard < bulkSilence }

func (s *Sender) wanted(now time.Duration) bool {
	return slices.ContainsFunc(s.peers, func(p *peer) bool { return p.asks(now) })
}

// bulkOpen reports whether a chunk can be sent now.
func (s *Sender) bulkOpen(now time.Duration) bool {
	if len(s.bulk.with) == 0 || !s.windowOpen(now) {
		return false
	}
	s.bulk.tokens.fill(now)
	return s.bulk.tokens.level > 0
}

// windowOpen reports whether few enough datagrams are without acknowledgement. It drops
// receivers that left the transfer or are silent: these begin anew.
func (s *Sender) windowOpen(now time.Duration) bool {
	least := s.store.next
	s.bulk.with = slices.DeleteFunc(s.bulk.with, func(p *peer) bool {
		if p.start != s.bulk.start || p.wants() || !slices.Contains(s.peers, p) {
			return true
		}
		if now-p.heard >= bulkSilence {
			p.served--
			return true
		}
		least = min(least, p.acked+1)
		return false
	})
	if len(s.bulk.with) == 0 {
		s.bulk.end()
	}
	return len(s.bulk.with) > 0 && s.store.next-least < uint64(s.config.Window)
}

// bulkDue is when a bulk transfer can go on by itself.
func (s *Sender) bulkDue(now time.Duration) time.Duration {
	switch {
	case s.config.Table == nil:
		return never
	case len(s.bulk.with) == 0:
		if s.wanted(now) {
			return max(now, s.bulk.again)
		}
		return never
	case !s.windowOpen(now): // an acknowledgement opens it, or the silence of a receiver
		if len(s.bulk.with) == 0 {
			return s.bulkDue(now)
		}
		next := never
		for _, p := range s.bulk.with {
			next = min(next, p.heard+bulkSilence)
		}
		return next
	}
	return max(s.bulk.tokens.until(now, 1), now+time.Millisecond)
}

// repeatStart sends the beginning of a bulk transfer again to a receiver that lacks it.
func (s *Sender) repeatStart(p *peer, out *Output) {
	if p.start < s.store.oldest() {
		p.served-- // it has to begin anew
		return
	}
	out.send(s.store.get(p.start), p.addr)
	s.counts.Repeated++
}
