// SPDX-License-Identifier: Apache-2.0

package own

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"imbang/internal/model"
)

// Intervals of a sender.
const (
	flushAfter    = 20 * time.Millisecond // a record waits for others at most
	tailAfter     = 20 * time.Millisecond // from the last datagram to the next beat
	beatEvery     = 100 * time.Millisecond
	admissionLife = 5 * time.Second  // from a welcome to the first acknowledgement
	receiverLife  = 10 * time.Second // without an acknowledgement; longer than admissionLife
	// resetEvery and welcomeEvery bound what replays of authentic datagrams can cause.
	resetEvery   = 20 * time.Millisecond
	welcomeEvery = 2 * time.Millisecond
	welcomeBurst = 64
	// welcomeAgain is the time between two answers to the same Hello, of which the latest are
	// remembered: one that is replayed does not take what others need.
	welcomeAgain = 100 * time.Millisecond
	mostPeers    = 32
	mostBarriers = 64
)

// Sender is the state of a director that sends its connections to a group. Its times are
// those of a monotonic clock of any origin. It is not for concurrent use.
type Sender struct {
	config  Config
	session uint64
	started time.Duration
	sign    *signer
	counts  Counts
	store   store
	dict    dictionary
	watch   challenger // looks for other senders
	others  others
	peers   []*peer

	open     []byte // the datagram that records are collected in, without its tag
	openBulk bool
	openedAt time.Duration

	beats    uint64
	nextBeat time.Duration
	resetAt  time.Duration
	welcomes bucket
	welcomed [welcomeBurst]struct { // the latest, in turn
		hello
		at time.Duration
	}
	welcomedNext int
	barriers     []uint64
	bulk         bulk
	walk         walk
	batch        []model.Connection
	scratch      []byte
	next         deadline
	ended        *ended       // of a pair
	asked        []unanswered // likewise
	roles        roles
	closed       bool
	announced    bool // the configuration was given
}

// peer is a receiver that the sender knows.
type peer struct {
	id, admitted uint64
	counter      uint64 // of its latest datagram
	addr         netip.AddrPort
	heard        time.Duration
	acked        uint64
	synced       bool
	lacking      uint32
	request      uint32 // its latest request for a bulk transfer
	served       uint32 // the one that the latest bulk transfer for it answers
	all          bool   // of a pair: it requests replicas, too
	start        uint64 // number of the datagram with which that one begins
	reached      uint64 // the latest barrier that was reported
}

// wants reports whether it waits for a bulk transfer that was not begun.
func (p *peer) wants() bool { return p.request != p.served }

// ReceiverStatus is what a sender knows of a receiver.
type ReceiverStatus struct {
	ID     uint64
	Addr   netip.AddrPort
	Behind uint64 // datagrams without acknowledgement
	Synced bool   // it has the whole table
	// Lacking is how many of its entries it could not enter, of a missing server or otherwise.
	Lacking uint64
	// Missing are services and servers that it does not have, as far as the caller knows: it fills
	// this in.
	Missing []string
}

// NewSender begins a session at a time.
func NewSender(now time.Duration, c Config) (*Sender, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	s := &Sender{
		config: c, session: 1 + c.Random()>>1, started: now, sign: newSigner(c.Key), store: newStore(c.Store),
		dict: newDictionary(), watch: challenger{id: c.Random()}, nextBeat: now,
		batch:    make([]model.Connection, chunk),
		welcomes: bucket{rate: float64(time.Second / welcomeEvery), most: welcomeBurst, level: welcomeBurst, at: now},
	}
	s.bulk.tokens = bucket{rate: float64(c.Rate), most: max(burst, float64(c.Rate)/200), at: now}
	s.walk.tokens = bucket{rate: float64(c.WalkRate), most: chunk, at: now}
	s.walk.seed = c.Random()
	s.walk.began = now
	s.walk.begin(now, c.Walk)
	return s, nil
}

// Session is the number of the session.
func (s *Sender) Session() uint64 { return s.session }

// Counts are the counters.
func (s *Sender) Counts() Counts { return s.counts }

// Receivers are the receivers that are registered.
func (s *Sender) Receivers() (list []ReceiverStatus) {
	for _, p := range s.peers {
		list = append(list, ReceiverStatus{p.id, p.addr, s.store.next - 1 - min(p.acked, s.store.next-1), p.synced, uint64(p.lacking), nil})
	}
	return list
}

// Update sends entries that were entered or changed: opened, of another state, with more
// packets. The caller's rule decides which. Entries must be given in the order of their
// changes, those that a Cursor read before them.
func (s *Sender) Update(now time.Duration, entries []model.Connection, out *Output) {
	for i := range entries {
		if s.tells(&entries[i]) {
			s.entry(now, opPut, &entries[i], false, out)
		}
	}
	s.due(now, out)
}

// tells reports whether an entry is told: in a pair not what the other director told.
func (s *Sender) tells(c *model.Connection) bool {
	return !s.config.pair || c.Flags&model.ConnReplica == 0
}

// Delete sends that entries were deleted or have expired.
func (s *Sender) Delete(now time.Duration, entries []model.Connection, out *Output) {
	for i := range entries {
		if !s.tells(&entries[i]) {
			continue
		}
		if s.ended != nil {
			s.ended.note(now, &entries[i])
		}
		s.entry(now, opDelete, &entries[i], false, out)
	}
	s.due(now, out)
}

// Barrier marks all that was given so far. Output.Reached names the receivers that have
// applied it, each once, when they also have the whole table. The latest 64 barriers are
// watched. It is a record of its own: a receiver that has everything must answer, too, as it
// may have ended since.
func (s *Sender) Barrier(now time.Duration, out *Output) uint64 {
	s.room(now, 1, false, out)
	s.open = append(s.open, opBarrier)
	s.flush(now, out)
	at := s.store.next - 1
	s.barriers = append(s.barriers, at)
	if len(s.barriers) > mostBarriers {
		s.barriers = append(s.barriers[:0], s.barriers[1:]...)
	}
	s.beat(now, beatAnswer, out)
	s.due(now, out)
	return at
}

// Close ends the session: receivers need not find out by its silence.
func (s *Sender) Close(now time.Duration, out *Output) {
	s.flush(now, out)
	for range 3 {
		s.beat(now, beatEnd, out)
	}
	s.closed = true
	s.bulk.end()
	s.walk.end()
	s.due(now, out)
}

// entry appends the record of an entry to the open datagram.
func (s *Sender) entry(now time.Duration, op uint8, c *model.Connection, bulk bool, out *Output) {
	if s.closed {
		return
	}
	index, known := s.dict.index(pair{c.Service, c.RealServer})
	if !known {
		d := definition{pair: pair{c.Service, c.RealServer}}
		if !d.sendable() {
			s.counts.Refused[ReasonUnsendable]++
			return
		}
		index = s.dict.add(d)
		s.define(now, index, out)
	}
	s.room(now, entrySize(c), bulk, out)
	if s.config.pair {
		c.Idle = pairIdle(c)
	} else {
		c.Idle = idle(c)
	}
	expires := c.Expires
	switch {
	case !s.config.pair:
		c.Flags &^= model.ConnReplica
		expires += s.walk.margin(now, s.config.Walk, c)
	case c.Flags&model.ConnReplica == 0: // a replica is not refreshed: its copy ends with it
		expires += s.walk.margin(now, s.config.Walk, c)
		if op == opPut {
			s.ended.forget(c)
		}
	}
	b, err := appendEntry(s.open, op, c, index, expires)
	if err != nil {
		s.counts.Refused[ReasonUnsendable]++
		return
	}
	s.open = b
	if op == opDelete {
		s.counts.Deletions++
	} else {
		s.counts.Entries++
	}
}

// define appends the record of a definition. Definitions are for all receivers.
func (s *Sender) define(now time.Duration, index uint32, out *Output) {
	s.room(now, longestDefinition, false, out)
	s.open = s.dict.all[index].append(s.open, index)
}

// room makes sure that the open datagram has room, and that it is for all receivers or for
// those of the bulk transfer.
func (s *Sender) room(now time.Duration, size int, bulk bool, out *Output) {
	if len(s.open) > 0 && (s.openBulk != bulk || len(s.open)+size > s.config.MaxDatagram-tagSize) {
		s.flush(now, out)
	}
	if len(s.open) == 0 {
		h := header{kind: kindData, group: s.config.Group, session: s.session, pair: s.config.pair}
		if bulk {
			h.flags = dataBulk
		}
		s.open, s.openBulk, s.openedAt = appendHeader(s.open, h), bulk, now
		if s.config.pair {
			s.open = appendStamp(s.open, stamp(now, s.started))
		}
	}
}

// flush sends the open datagram, if it has a record.
func (s *Sender) flush(now time.Duration, out *Output) {
	if len(s.open) <= headerSize || s.config.pair && kind(s.open[4]) == kindData && len(s.open) == headerSize+stampSize {
		s.open = s.open[:0]
		return
	}
	s.number(now, s.open, out)
	s.open = s.open[:0]
}

// number gives a datagram the next number, and sends and keeps it.
func (s *Sender) number(now time.Duration, b []byte, out *Output) {
	binary.BigEndian.PutUint64(b[16:], s.store.next)
	b = s.sign.sign(b)
	s.open = b[:0:cap(b)]
	s.store.add(b)
	out.send(b, s.config.To...)
	s.counts.Datagrams++
	s.nextBeat = min(s.nextBeat, now+tailAfter)
}

// control sends a datagram without a number.
func (s *Sender) control(h header, body func([]byte) []byte, out *Output, to ...netip.AddrPort) {
	h.group, h.session, h.pair = s.config.Group, cmp.Or(h.session, s.session), s.config.pair
	s.scratch = s.sign.sign(body(appendHeader(s.scratch[:0], h)))
	out.send(s.scratch, to...)
}

func (s *Sender) beat(now time.Duration, flags uint8, out *Output) {
	s.beats++
	x := beat{s.store.oldest(), s.store.next}
	body := x.append
	if s.config.pair {
		body = func(b []byte) []byte { return appendStamp(x.append(b), stamp(now, s.started)) }
	}
	s.control(header{kind: kindBeat, flags: flags, number: s.beats}, body, out, s.config.To...)
	s.nextBeat = now + beatEvery
}

// Tick does what is due.
func (s *Sender) Tick(now time.Duration, out *Output) {
	if s.closed {
		s.due(now, out)
		return
	}
	if len(s.open) > 0 && now-s.openedAt >= flushAfter {
		s.flush(now, out)
	}
	s.peers = slices.DeleteFunc(s.peers, func(p *peer) bool {
		if now-p.heard < receiverLife {
			return false
		}
		out.Events = append(out.Events, Event{Kind: EventReceiverLost, Peer: p.addr, ID: p.id})
		return true
	})
	s.pump(now, out)
	s.refresh(now, out)
	if now >= s.nextBeat {
		s.beat(now, 0, out)
	}
	s.due(now, out)
}

// due says when Tick is.
func (s *Sender) due(now time.Duration, out *Output) {
	if s.closed {
		s.next.set(now, now+never, out)
		return
	}
	next := s.nextBeat
	if len(s.open) > 0 {
		next = min(next, s.openedAt+flushAfter)
	}
	next = min(next, s.bulkDue(now), s.walkDue(now))
	s.next.set(now, next, out)
}

// Receive handles a datagram.
func (s *Sender) Receive(now time.Duration, from netip.AddrPort, b []byte, out *Output) {
	if r := s.receive(now, from, b, out); r != accepted {
		s.counts.Refused[r]++
	}
	s.due(now, out)
}

func (s *Sender) receive(now time.Duration, from netip.AddrPort, b []byte, out *Output) Reason {
	h, body, r := readHeader(b)
	if r != accepted {
		return r
	}
	if h.group != s.config.Group {
		return ReasonGroup
	}
	if s.closed {
		return ReasonKind
	}
	if h.pair != s.config.pair {
		return s.roles.differs(now, s.sign, from, b, out)
	}
	switch h.kind {
	case kindAck:
		return s.acknowledge(now, from, h, body, b, out)
	case kindHello:
		return s.hello(now, from, h, body, b, out)
	case kindWelcome:
		w := readWelcome(body)
		if h.session == s.session || !s.watch.proved(now, w) {
			return ReasonUnproved
		}
		if !s.sign.verify(b) {
			return ReasonForged
		}
		s.watch.answered()
		s.others.report(now, h.session, from, out)
		return accepted
	case kindData, kindBulkStart, kindBeat:
		if h.session == s.session {
			return ReasonReplayed // its own, from the multicast group
		}
		if s.others.known(now, h.session) || s.watch.busy(now) {
			return ReasonSession
		}
		if !s.sign.verify(b) {
			return ReasonForged
		}
		// It may be a recording: it is another sender only if it answers.
		x := s.watch.hello(now, s.config.Random)
		s.control(header{kind: kindHello, session: h.session}, x.append, out, from)
		return ReasonSession
	}
	return ReasonKind
}

// hello answers one who asks whether this session is running.
func (s *Sender) hello(now time.Duration, from netip.AddrPort, h header, body, b []byte, out *Output) Reason {
	if h.session != 0 && h.session != s.session {
		return ReasonSession
	}
	x := readHello(body)
	if x.receiver == s.watch.id {
		return ReasonReplayed // its own
	}
	for i := range s.welcomed {
		if w := &s.welcomed[i]; w.hello == x && now-w.at < welcomeAgain {
			return ReasonLimited
		}
	}
	if !s.sign.verify(b) {
		return ReasonForged
	}
	if !s.welcomes.take(now, 1) {
		return ReasonLimited
	}
	w := &s.welcomed[s.welcomedNext%len(s.welcomed)]
	w.hello, w.at = x, now
	s.welcomedNext++
	if s.config.pair && h.flags&helloProbe != 0 {
		s.keep(unanswered{x, from, now}, out)
	} else {
		s.welcome(now, x, 0, from, out)
	}
	return accepted
}

// welcome answers one; next of a pair's question alone.
func (s *Sender) welcome(now time.Duration, x hello, next uint64, from netip.AddrPort, out *Output) {
	w := welcome{receiver: x.receiver, nonce: x.nonce, admitted: uint64((now - s.started) / time.Millisecond), next: next}
	body := w.append
	if s.config.pair {
		body = w.appendPair
	}
	s.control(header{kind: kindWelcome}, body, out, from)
}

// acknowledge handles a datagram of a receiver.
func (s *Sender) acknowledge(now time.Duration, from netip.AddrPort, h header, body, b []byte, out *Output) Reason {
	if h.session != s.session {
		return ReasonSession
	}
	x, ranges := readAck(body)
	i := slices.IndexFunc(s.peers, func(p *peer) bool { return p.id == x.receiver })
	if i >= 0 && h.number <= s.peers[i].counter {
		return ReasonReplayed
	}
	if !s.sign.verify(b) {
		return ReasonForged
	}
	lacking := uint32(0)
	if h.flags&ackLacks != 0 && len(ranges) >= 4 {
		lacking, ranges = binary.BigEndian.Uint32(ranges), ranges[4:]
	}
	if x.cumulative >= s.store.next {
		return ReasonMalformed
	}
	if i < 0 {
		// A recorded acknowledgement has an old admission.
		age := now - s.started - time.Duration(min(x.admitted, 1<<40))*time.Millisecond
		if age < -time.Millisecond || age > admissionLife {
			return s.resetReceiver(now, from, h, x, out)
		}
		// A director that was started anew is another receiver with the same address.
		s.peers = slices.DeleteFunc(s.peers, func(p *peer) bool { return p.addr == from })
		if len(s.peers) == mostPeers {
			return ReasonLimited
		}
		i = len(s.peers)
		s.peers = append(s.peers, &peer{id: x.receiver, admitted: x.admitted})
		out.Events = append(out.Events, Event{Kind: EventReceiverJoined, Peer: from, ID: x.receiver})
	}
	p := s.peers[i]
	p.counter, p.addr, p.heard, p.synced, p.lacking = h.number, from, now, h.flags&ackSynced != 0, lacking
	if h.flags&ackWant != 0 {
		p.all = h.flags&ackAll != 0
		if p.request = x.request; p.request == p.served {
			s.repeatStart(p, out)
		}
		return accepted
	}
	p.acked = max(p.acked, x.cumulative)
	s.repeat(p, x.cumulative, ranges, out)
	s.reached(p, out)
	s.pump(now, out)
	return accepted
}

func (s *Sender) resetReceiver(now time.Duration, from netip.AddrPort, h header, x ack, out *Output) Reason {
	if now >= s.resetAt {
		s.resetAt = now + resetEvery
		s.control(header{kind: kindReset}, reset{x.receiver, h.number}.append, out, from)
	}
	return ReasonUnknown
}

// repeat sends again what a receiver lacks. A beat says what is no longer kept.
func (s *Sender) repeat(p *peer, cumulative uint64, ranges []byte, out *Output) {
	for left := s.config.Window; len(ranges) >= rangeSize; ranges = ranges[rangeSize:] {
		first, n := readRange(ranges, cumulative)
		for number := max(first, s.store.oldest()); number < min(first+uint64(n), s.store.next) && left > 0; number++ {
			out.send(s.store.get(number), p.addr)
			s.counts.Repeated++
			left--
		}
	}
}

// reached reports the barriers that a receiver has reached.
func (s *Sender) reached(p *peer, out *Output) {
	if !p.synced || p.wants() {
		return
	}
	for _, at := range s.barriers {
		if at > p.acked {
			return
		}
		if at >= p.reached {
			p.reached = at + 1
			out.Reached = append(out.Reached, Reached{at, p.id, p.addr})
		}
	}
}

// bucket is a token bucket.
type bucket struct {
	rate, most, level float64 // [tokens/s], [tokens]
	at                time.Duration
}

func (k *bucket) fill(now time.Duration) {
	if now > k.at {
		k.level = min(k.most, k.level+k.rate*(now-k.at).Seconds())
		k.at = now
	}
}

func (k *bucket) take(now time.Duration, n float64) bool {
	k.fill(now)
	if k.level < n {
		return false
	}
	k.level -= n
	return true
}

// until is when it will have tokens.
func (k *bucket) until(now time.Duration, n float64) time.Duration {
	k.fill(now)
	if k.level >= n {
		return now
	}
	return now + time.Duration((n-k.level)/k.rate*float64(time.Second)) + time.Microsecond
}
