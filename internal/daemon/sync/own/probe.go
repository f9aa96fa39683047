// SPDX-License-Identifier: Apache-2.0

package own

import (
	"net/netip"
	"time"
)

// probeEvery is the time between two questions how far the sender's stream is.
const probeEvery = 50 * time.Millisecond

// probe asks the sender of a pair how far its stream is: what was received may be old, as
// after a pause of the whole machine.
type probe struct {
	nonce uint64 // of the question; 0: it was answered
	asked time.Duration
	next  uint64        // number of the datagram that came next, when it was answered; 0: it was not
	as    time.Duration // when that question was asked
	fresh time.Duration // all that the sender had at that time is here
	known bool          // fresh is
}

// HasAll reports whether all that the other director had sent at a time is here: its whole table,
// but for what happened there in the last 30 ms before. If that is not known it asks: the
// caller asks again some milliseconds later.
func (r *Receiver) HasAll(now, since time.Duration, out *Output) bool {
	p := &r.probe
	if p.next != 0 && r.following && r.synced && !r.want && r.done >= p.next-1 {
		p.fresh, p.known, p.next = p.as, true, 0
	}
	if p.known && p.fresh >= since {
		return true
	}
	if r.following && (p.asked == 0 || now-p.asked >= probeEvery) {
		p.nonce, p.asked = 1+r.config.Random()>>1, now
		b := appendHeader(r.scratch[:0], header{kind: kindHello, group: r.config.Group, session: r.session, pair: r.config.pair})
		r.scratch = r.sign.sign(hello{r.prove.id, p.nonce}.append(b))
		out.send(r.scratch, r.peer)
	}
	r.due(now, out)
	return false
}

// answered reports whether a welcome answers the question.
func (p *probe) answered(w welcome) bool { return p.nonce != 0 && w.nonce == p.nonce }

// reached handles the answer to a question.
func (r *Receiver) reached(now time.Duration, from netip.AddrPort, w welcome, b []byte) Reason {
	if !r.sign.verify(b) {
		return ReasonForged
	}
	p := &r.probe
	p.nonce = 0
	if w.next == 0 || from != r.peer {
		return ReasonUnproved
	}
	p.next, p.as = w.next, p.asked
	if !r.want {
		r.exists(now, w.next-1)
	}
	return accepted
}
