// SPDX-License-Identifier: Apache-2.0

package own

import (
	"encoding/binary"
	"math"
	"net/netip"
	"time"

	"imbang/internal/model"
)

// Intervals and bounds of a receiver.
const (
	reorder     = 1024 // datagrams that are kept while an earlier one is missing
	ackAfter    = 20 * time.Millisecond
	ackEach     = 32 // datagrams
	ackLeast    = 15 * time.Millisecond
	aliveEvery  = time.Second            // between acknowledgements
	gapAfter    = 5 * time.Millisecond   // datagrams may overtake each other
	askAgain    = 40 * time.Millisecond  // from a request of a datagram to the next one
	wantEvery   = 50 * time.Millisecond  // requests for a bulk transfer
	helloEvery  = 200 * time.Millisecond // while no session is followed
	sessionLife = time.Second            // without a datagram
	mostRanges  = 60                     // of missing datagrams, in one acknowledgement
	mostAsked   = 128                    // missing datagrams likewise
	sweepChunk  = 1024                   // entries compared at a time
	sweepEvery  = time.Millisecond
	repairEvery = 10 * time.Second // bulk transfers because of records that cannot be applied
)

// Receiver is the state of a director that follows the sender of a group. Its times are
// those of a monotonic clock of any origin. It is not for concurrent use.
type Receiver struct {
	config Config
	sign   *signer
	counts Counts
	prove  challenger
	others others

	session   uint64 // that is followed, or was followed last; 0: none
	following bool
	admitted  uint64
	peer      netip.AddrPort
	heard     time.Duration
	helloAt   time.Duration
	counter   uint64 // of its acknowledgements
	floor     uint64 // likewise, when it was admitted

	// The stream: all up to done was applied, last is known to exist.
	done, last uint64
	settled    uint64 // what is missing up to here is requested
	slots      []slot // by number, modulo the length
	beats      uint64
	gapAt      time.Duration // 0: nothing is missing
	unacked    int
	ackAt      time.Duration // never: nothing is to be acknowledged
	acked      time.Duration
	scratch    []byte

	want    bool // a bulk transfer was requested and has not begun
	request uint32
	bulk    uint64 // number of the datagram with which the one that runs began; 0: none
	synced  bool

	// spoiled: a record of the stream was not applied, since it could not be read. Another bulk
	// transfer is requested, not before repairAt.
	spoiled  bool
	repairAt time.Duration

	lacking uint32 // entries that the caller could not enter

	definitions map[uint32]definition
	skew        skew
	sweep       sweep

	next  deadline
	roles roles
	// The rest is of a pair.
	ended *ended
	ages  ages
	age   time.Duration // of the datagram that is applied
	all   bool          // a bulk transfer is to have replicas: what was here may be lost
	// allCame: they came. It counts when the caller has applied them.
	allCame bool
	// hasAll: the one that runs does.
	hasAll bool
	probe  probe
	whole  whole
}

// slot is for one datagram.
type slot struct {
	number uint64 // 0: empty
	b      []byte // with header, without tag
	asked  uint64 // the number that was requested last
	at     time.Duration
}

// NewReceiver makes one that looks for a sender.
func NewReceiver(now time.Duration, c Config) (*Receiver, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	r := &Receiver{
		config: c, sign: newSigner(c.Key), prove: challenger{id: c.Random()}, slots: make([]slot, reorder),
		helloAt: now, ackAt: never, definitions: map[uint32]definition{},
	}
	r.sweep.seed = c.Random()
	return r, nil
}

// Counts are the counters.
func (r *Receiver) Counts() Counts { return r.counts }

// ReceiverState is what a receiver knows of its session.
type ReceiverState struct {
	Session   uint64
	Sender    netip.AddrPort
	Following bool   // the session is alive
	Synced    bool   // it has the whole table
	Missing   uint64 // datagrams that were sent and are not applied
}

// State is the state of the session.
func (r *Receiver) State() ReceiverState {
	return ReceiverState{r.session, r.peer, r.following, r.synced, r.last - min(r.done, r.last)}
}

// Tick does what is due.
func (r *Receiver) Tick(now time.Duration, out *Output) {
	r.applied(now)
	if r.following && now-r.heard >= sessionLife {
		r.lose(now, out)
	}
	if !r.following && now >= r.helloAt {
		r.helloAt = now + helloEvery
		r.hello(now, 0, out, r.config.To...)
	}
	if r.following {
		r.repair(now)
		r.nack(now, out)
		if r.want && now-r.acked >= wantEvery || now-r.acked >= aliveEvery {
			r.ackAt = now
		}
		r.acknowledge(now, out)
		r.sweepOn(now, out)
		r.askWhole(now, out)
	}
	r.compare(now, out)
	r.due(now, out)
}

func (r *Receiver) due(now time.Duration, out *Output) {
	next := r.helloAt
	if r.following {
		next = min(r.heard+sessionLife, r.ackAt, r.acked+aliveEvery)
		if r.want {
			next = min(next, r.acked+wantEvery)
		}
		if r.gapAt != 0 {
			next = min(next, r.gapAt)
		}
		if r.spoiled && !r.want {
			next = min(next, r.repairAt)
		}
		if r.sweep.ready {
			next = min(next, r.sweep.next)
		}
		if r.config.pair {
			next = min(next, r.whole.ask)
		}
	}
	if r.skew.at != 0 {
		next = min(next, r.skew.at)
	}
	r.next.set(now, next, out)
}

// Receive handles a datagram.
func (r *Receiver) Receive(now time.Duration, from netip.AddrPort, b []byte, out *Output) {
	r.applied(now)
	if why := r.receive(now, from, b, out); why != accepted {
		r.counts.Refused[why]++
	}
	// What is to be applied is acknowledged by the next Tick, with what could not be entered.
	if r.following && len(out.Apply) == 0 {
		r.acknowledge(now, out)
	}
	r.due(now, out)
}

func (r *Receiver) receive(now time.Duration, from netip.AddrPort, b []byte, out *Output) Reason {
	h, body, why := readHeader(b)
	if why != accepted {
		return why
	}
	if h.group != r.config.Group {
		return ReasonGroup
	}
	if h.pair != r.config.pair {
		return r.roles.differs(now, r.sign, from, b, out)
	}
	if h.kind == kindWelcome {
		return r.welcome(now, from, h, readWelcome(body), b, out)
	}
	if h.kind == kindHello || h.kind == kindAck {
		return ReasonKind // of another receiver, from the multicast group
	}
	if h.session != r.session {
		return r.challenge(now, from, h, b, out)
	}
	if !r.following {
		return ReasonSession // a welcome resumes it
	}
	switch h.kind {
	case kindData, kindBulkStart:
		return r.numbered(now, h, body, b, out)
	case kindBeat:
		if h.number <= r.beats {
			return ReasonReplayed
		}
		if !r.sign.verify(b) {
			return ReasonForged
		}
		r.beats, r.heard = h.number, now
		if h.pair {
			r.ages.note(now, binary.BigEndian.Uint32(body[16:]))
		}
		r.beat(now, h.flags, readBeat(body), out)
		return accepted
	case kindReset:
		x := readReset(body)
		if x.receiver != r.prove.id || x.counter <= r.floor || x.counter > r.counter {
			return ReasonReplayed
		}
		if !r.sign.verify(b) {
			return ReasonForged
		}
		r.following, r.helloAt = false, now+helloEvery
		r.hello(now, r.session, out, from)
		return accepted
	}
	return ReasonKind
}

// hello challenges a session, or with 0 all.
func (r *Receiver) hello(now time.Duration, session uint64, out *Output, to ...netip.AddrPort) {
	x := r.prove.hello(now, r.config.Random)
	b := appendHeader(r.scratch[:0], header{kind: kindHello, group: r.config.Group, session: session, pair: r.config.pair})
	r.scratch = r.sign.sign(x.append(b))
	out.send(r.scratch, to...)
}

// challenge answers a datagram of another session: it may be a recording.
func (r *Receiver) challenge(now time.Duration, from netip.AddrPort, h header, b []byte, out *Output) Reason {
	if r.following && r.others.known(now, h.session) || r.prove.busy(now) {
		return ReasonSession
	}
	if !r.sign.verify(b) {
		return ReasonForged
	}
	r.hello(now, h.session, out, from)
	return ReasonSession
}

// welcome handles a sender's proof that it is running.
func (r *Receiver) welcome(now time.Duration, from netip.AddrPort, h header, w welcome, b []byte, out *Output) Reason {
	if r.following && h.session == r.session && w.receiver == r.prove.id {
		if i := r.probe.answered(w); i >= 0 {
			return r.reached(now, from, i, w, b)
		}
	}
	if h.session == 0 || !r.prove.proved(now, w) {
		return ReasonUnproved
	}
	if !r.sign.verify(b) {
		return ReasonForged
	}
	r.prove.answered()
	if r.following {
		// The receiver stays with the session that it follows as long as it is alive. One
		// with the same address was restarted.
		if h.session != r.session && from != r.peer {
			r.others.report(now, h.session, from, out)
		}
		return accepted
	}
	if h.session != r.session {
		r.begin(h.session)
	} else if !r.synced {
		r.requestBulk()
	}
	r.others.drop(h.session)
	r.following, r.admitted, r.peer, r.heard, r.floor = true, w.admitted, from, now, r.counter
	r.ackAt = now
	out.Events = append(out.Events, Event{Kind: EventFollowing, Peer: from, ID: h.session})
	return accepted
}

// begin empties what belongs to the last session.
func (r *Receiver) begin(session uint64) {
	r.session, r.done, r.last, r.settled, r.beats, r.gapAt, r.unacked = session, 0, 0, 0, 0, 0, 0
	for i := range r.slots {
		r.slots[i].number, r.slots[i].asked = 0, 0
	}
	clear(r.definitions)
	r.ages = ages{}
	r.skew.known = false
	r.sweep.cancel()
	r.want, r.spoiled = false, false
	r.requestBulk()
}

// requestBulk requests the whole table. Until the transfer begins nothing is applied.
func (r *Receiver) requestBulk() {
	if r.want {
		return
	}
	r.request++
	r.want, r.synced, r.bulk, r.gapAt = true, false, 0, 0
	r.probe.forget()
}

// spoil notes that a record was not applied. What the sender has is not known then.
func (r *Receiver) spoil() {
	r.spoiled, r.synced = true, false
	r.sweep.cancel()
}

// repair requests the whole table after a record that was not applied. It does so at times
// only: the table can have it again.
func (r *Receiver) repair(now time.Duration) {
	if r.spoiled && !r.want && now >= r.repairAt {
		r.repairAt = now + repairEvery
		r.requestBulk()
	}
}

// SetLacking says how many entries of the sender the caller could not enter. Acknowledgements
// have it.
func (r *Receiver) SetLacking(now time.Duration, n uint64, out *Output) {
	lacking := uint32(min(n, math.MaxUint32))
	if lacking == r.lacking {
		return
	}
	if r.lacking == 0 || lacking == 0 {
		r.ackAt = now
	}
	r.lacking = lacking
	r.due(now, out)
}

// RequestBulk requests the whole table: the caller has not applied what was put out.
func (r *Receiver) RequestBulk(now time.Duration, out *Output) {
	r.all, r.allCame, r.whole.known = r.config.pair, false, false
	r.requestBulk()
	r.sweep.cancel()
	r.due(now, out)
}

func (r *Receiver) lose(now time.Duration, out *Output) {
	r.following, r.helloAt = false, now
	out.Events = append(out.Events, Event{Kind: EventSessionLost, Peer: r.peer, ID: r.session})
}

// beat handles what the sender says of its stream.
func (r *Receiver) beat(now time.Duration, flags uint8, x beat, out *Output) {
	if flags&beatEnd != 0 {
		r.lose(now, out)
		return
	}
	if flags&beatAnswer != 0 || now-r.acked >= ackLeast {
		r.ackAt = now
	}
	if r.want {
		return
	}
	if r.done+1 < x.oldest {
		out.Events = append(out.Events, Event{Kind: EventFellBehind, Peer: r.peer, ID: r.session})
		r.requestBulk()
		return
	}
	r.exists(now, x.next-1)
}

// exists notes that the stream reaches to a number.
func (r *Receiver) exists(now time.Duration, number uint64) {
	r.last = max(r.last, number)
	if r.last > r.done && r.gapAt == 0 {
		r.gapAt = now + gapAfter
	}
}

// numbered handles a datagram of the stream. It is applied in its turn.
func (r *Receiver) numbered(now time.Duration, h header, body, b []byte, out *Output) Reason {
	if h.number <= r.done {
		return ReasonReplayed
	}
	at := &r.slots[h.number%reorder]
	switch {
	case r.want && h.kind != kindBulkStart, !r.want && h.number > r.done+reorder:
		return ReasonWindow
	case !r.want && at.number == h.number:
		return ReasonReplayed
	}
	if r.want && !r.isFor(body) {
		return ReasonWindow
	}
	if !r.sign.verify(b) {
		return ReasonForged
	}
	r.heard = now
	r.counts.Datagrams++
	if h.pair && h.kind == kindData {
		r.ages.note(now, binary.BigEndian.Uint32(body))
	}
	if r.want {
		r.start(h)
		r.unacked, r.ackAt = 0, now
		return accepted
	}
	r.exists(now, h.number)
	if h.number != r.done+1 {
		at.number = h.number
		at.b = append(at.b[:0], b[:len(b)-tagSize]...)
		return accepted
	}
	why := r.apply(now, h, body, out)
	for at = &r.slots[(r.done+1)%reorder]; at.number == r.done+1; at = &r.slots[(r.done+1)%reorder] {
		at.number = 0
		next := header{kind: kind(at.b[4]), flags: at.b[5], number: r.done + 1}
		if w := r.apply(now, next, at.b[headerSize:], out); w != accepted {
			why = w
		}
	}
	if r.done >= r.last {
		r.gapAt = 0
	}
	return why
}

// isFor reports whether a bulk transfer answers the latest request.
func (r *Receiver) isFor(body []byte) bool {
	for ; len(body) >= participantSize; body = body[participantSize:] {
		if readParticipant(body) == (participant{r.prove.id, r.request}) {
			return true
		}
	}
	return false
}

// start goes to the beginning of a bulk transfer. It contains all that was missed.
func (r *Receiver) start(h header) {
	number := h.number
	r.hasAll = h.flags&bulkAll != 0
	for i := range r.slots {
		r.slots[i].number, r.slots[i].asked = 0, 0
	}
	r.want, r.bulk, r.done, r.last, r.settled, r.gapAt = false, number, number, number, number, 0
	r.spoiled = false
	r.counts.Bulks++
	clear(r.definitions) // they are repeated, and which were forgotten was perhaps missed
	r.skew.known = false
	r.sweep.begin(r.config.Table != nil)
}

// apply applies the datagram that is next.
func (r *Receiver) apply(now time.Duration, h header, body []byte, out *Output) Reason {
	r.done = h.number
	if r.unacked++; r.unacked >= ackEach {
		r.ackAt = now
	}
	r.ackAt = min(r.ackAt, now+ackAfter)
	if h.kind == kindBulkStart {
		if r.bulk != 0 && r.isFor(body) { // the sender could not read its table, and begins anew
			r.bulk, r.hasAll = h.number, h.flags&bulkAll != 0
			r.sweep.begin(r.config.Table != nil)
		}
		return accepted
	}
	changes := len(out.Apply)
	why := accepted
	in := reader{b: body}
	r.age = 0
	if r.config.pair {
		r.age = r.ages.of(now, in.word())
	}
	for len(in.b) > 0 {
		w := r.record(now, h.flags&dataBulk != 0, &in, out)
		if w == ReasonMalformed {
			out.Apply = out.Apply[:changes]
			r.spoil()
			return w
		}
		if w != accepted {
			r.spoil()
			why = w
		}
	}
	return why
}

// record applies one record.
func (r *Receiver) record(now time.Duration, bulk bool, in *reader, out *Output) Reason {
	switch op := in.b[0] & opMask; op {
	case opPut, opDelete:
		return r.entry(now, op == opDelete, bulk, in, out)
	case opDefine:
		index, d, err := readDefinition(in)
		if err != nil {
			return ReasonMalformed
		}
		r.definitions[index] = d
	case opForget:
		in.byte()
		delete(r.definitions, in.word())
	case opConfigEnd:
		in.byte()
		r.skew.count = int(in.word())
		r.skew.known, r.skew.at = true, now+skewAfter
	case opBulkEnd:
		in.byte()
		if start := in.long(); !in.fail && r.bulk != 0 && start == r.bulk {
			r.bulk, r.ackAt = 0, now
			if r.spoiled {
				return accepted
			}
			if r.all && !r.hasAll { // it was begun before they were missed
				r.requestBulk()
				return accepted
			}
			r.synced, r.allCame = true, true
			out.Events = append(out.Events, Event{Kind: EventSynced, Peer: r.peer, ID: r.session})
			r.sweep.ready = r.sweep.seen != nil
		}
	case opBarrier:
		in.byte()
	default:
		return ReasonMalformed
	}
	if in.fail {
		return ReasonMalformed
	}
	return accepted
}

// entry applies the record of an entry.
func (r *Receiver) entry(now time.Duration, remove, bulk bool, in *reader, out *Output) Reason {
	out.Apply = append(out.Apply, Change{})
	x := &out.Apply[len(out.Apply)-1]
	x.Delete = remove
	index, err := readEntry(in, &x.Conn, out)
	if err != nil {
		return ReasonMalformed
	}
	d, ok := r.definitions[index]
	if !ok || bulk && r.bulk == 0 { // or it is for others
		out.Apply = out.Apply[:len(out.Apply)-1]
		if !ok {
			return ReasonUndefined
		}
		return accepted
	}
	d.complete(&x.Conn)
	x.Conn.Idle = r.ages.stood.idle(now, x.Conn.Idle+r.age)
	x.Conn.Expires = max(0, x.Conn.Expires-r.age)
	if remove {
		r.counts.Deletions++
		return accepted
	}
	if r.ended != nil {
		if r.ended.outdates(now, &x.Conn) {
			out.Apply = out.Apply[:len(out.Apply)-1]
			return accepted
		}
		// What is told at once may have been entered there otherwise than by a packet.
		if (bulk || r.age > wholeSlack) && r.whole.had(now, &x.Conn) {
			if x.Conn.Flags&model.ConnReplica != 0 {
				out.Apply = out.Apply[:len(out.Apply)-1]
				return accepted
			}
			x.Known = true
		}
		if x.Conn.Flags&model.ConnReplica == 0 {
			r.ended.forget(&x.Conn)
		}
	}
	r.counts.Entries++
	r.sweep.add(&x.Conn)
	return accepted
}

// complete fills in what the index of an entry stands for.
func (d *definition) complete(c *model.Connection) {
	c.Service, c.RealServer = d.service, d.server
	c.Server = netip.AddrPortFrom(d.server.Addr(), c.Server.Port())
}

// nack makes an acknowledgement due if datagrams are to be requested.
func (r *Receiver) nack(now time.Duration, out *Output) {
	if r.gapAt == 0 || now < r.gapAt {
		return
	}
	if r.done >= r.last {
		r.gapAt = 0
		return
	}
	r.gapAt = now + gapAfter
	r.send(now, true, out)
	r.settled = r.last
}

// acknowledge sends an acknowledgement if one is due.
func (r *Receiver) acknowledge(now time.Duration, out *Output) {
	if now >= r.ackAt {
		r.send(now, false, out)
	}
}

// send sends an acknowledgement, with the requests that are due; or only if there are any.
func (r *Receiver) send(now time.Duration, onlyRequests bool, out *Output) {
	h := header{kind: kindAck, group: r.config.Group, session: r.session, number: r.counter + 1, pair: r.config.pair}
	if r.want {
		h.flags |= ackWant
	}
	if r.all {
		h.flags |= ackAll
	}
	if r.synced {
		h.flags |= ackSynced
	}
	if r.lacking > 0 {
		h.flags |= ackLacks
	}
	b := appendHeader(r.scratch[:0], h)
	b = ack{r.prove.id, r.admitted, r.done, r.request}.append(b)
	if r.lacking > 0 {
		b = binary.BigEndian.AppendUint32(b, r.lacking)
	}
	before := len(b)
	if !r.want {
		b = r.missing(now, b)
	}
	r.scratch = b
	if onlyRequests && len(b) == before {
		return
	}
	r.counter++
	r.scratch = r.sign.sign(b)
	out.send(r.scratch, r.peer)
	r.unacked, r.ackAt, r.acked = 0, never, now
}

// missing appends the ranges of datagrams that are missing and were not requested just now.
func (r *Receiver) missing(now time.Duration, b []byte) []byte {
	ranges, asked := 0, 0
	first, n := uint64(0), 0
	for number := r.done + 1; number <= min(r.settled, r.done+reorder) && asked < mostAsked; number++ {
		at := &r.slots[number%reorder]
		if at.number == number || at.asked == number && now-at.at < askAgain {
			continue
		}
		if n > 0 && first+uint64(n) == number {
			n++
		} else {
			if n > 0 {
				b = appendRange(b, r.done, first, n)
			}
			if ranges++; ranges > mostRanges {
				n = 0
				break
			}
			first, n = number, 1
		}
		at.asked, at.at = number, now
		asked++
	}
	if n > 0 {
		b = appendRange(b, r.done, first, n)
	}
	r.counts.Repeated += uint64(asked)
	return b
}
