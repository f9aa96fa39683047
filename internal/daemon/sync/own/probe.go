// SPDX-License-Identifier: Apache-2.0

package own

import (
	"net/netip"
	"slices"
	"time"
)

const (
	// probeEvery is the time between two questions how far the sender's stream is. It doubles with
	// each one that is not answered, up to probeSeldom: the other director may be far away.
	probeEvery  = 50 * time.Millisecond
	probeSeldom = time.Second
	// An answer is good for one of the last mostQuestions of the last questionLife.
	mostQuestions = 8
	questionLife  = 5 * time.Second
)

// probe asks the sender of a pair how far its stream is: what was received may be old, as
// after a pause of the whole machine.
type probe struct {
	questions []question    // by the time of asking
	fresh     time.Duration // all that the sender had at that time is here
	known     bool          // fresh is
}

// question is one that counts: what it was answered is not here yet. A later one does not take
// its place: under load the stream would never be as far as the latest answer.
type question struct {
	nonce uint64
	asked time.Duration
	next  uint64 // number of the datagram that came next, when it was answered; 0: it was not
}

// HasAll reports whether all that the other director had sent at a time is here: its whole table,
// but for what happened there in the last 30 ms before. If that is not known it asks: the
// caller asks again some milliseconds later.
func (r *Receiver) HasAll(now, since time.Duration, out *Output) bool {
	p := &r.probe
	r.applied(now)
	if p.known && p.fresh >= since {
		return true
	}
	if r.following && p.due(now, since) {
		x := hello{r.prove.id, 1 + r.config.Random()>>1}
		p.ask(now, x.nonce)
		b := appendHeader(r.scratch[:0], header{kind: kindHello, flags: helloProbe, group: r.config.Group, session: r.session, pair: r.config.pair})
		r.scratch = r.sign.sign(x.append(b))
		out.send(r.scratch, r.peer)
	}
	r.due(now, out)
	return false
}

// reach notes that the stream was applied up to a number.
func (p *probe) reach(done uint64) {
	for i := len(p.questions) - 1; i >= 0; i-- {
		if q := p.questions[i]; q.next != 0 && done >= q.next-1 {
			p.fresh, p.known = q.asked, true
			p.questions = slices.Delete(p.questions, 0, i+1) // the earlier ones say less
			return
		}
	}
}

// due reports whether a question is to be asked, to know what there was at a time.
func (p *probe) due(now, since time.Duration) bool {
	p.questions = slices.DeleteFunc(p.questions, func(q question) bool { return q.next == 0 && now-q.asked >= questionLife })
	every, last := probeEvery, -never
	for _, q := range p.questions {
		if q.next != 0 && q.asked >= since {
			return false // the answer is here, and the stream is to come
		}
		if last = q.asked; q.next == 0 {
			every = min(2*every, probeSeldom)
		} else {
			every = probeEvery
		}
	}
	return len(p.questions) == 0 || now-last >= every
}

func (p *probe) ask(now time.Duration, nonce uint64) {
	if len(p.questions) == mostQuestions {
		// The first answer stays: it is the next one to be reached.
		i := 0
		if p.questions[0].next != 0 {
			i = 1
		}
		p.questions = slices.Delete(p.questions, i, i+1)
	}
	p.questions = append(p.questions, question{nonce: nonce, asked: now})
}

// answered is the question that a welcome answers, -1 if none.
func (p *probe) answered(w welcome) int {
	return slices.IndexFunc(p.questions, func(q question) bool { return q.next == 0 && w.nonce == q.nonce })
}

// forget forgets the questions: a number of the stream does not say any more what is here.
func (p *probe) forget() { p.questions = p.questions[:0] }

// reached handles the answer to a question.
func (r *Receiver) reached(now time.Duration, from netip.AddrPort, i int, w welcome, b []byte) Reason {
	if !r.sign.verify(b) {
		return ReasonForged
	}
	if w.next == 0 || from != r.peer {
		return ReasonUnproved
	}
	r.probe.questions[i].next = w.next
	if !r.want {
		r.exists(now, w.next-1)
	}
	return accepted
}

// unanswered is a question of the other director. What happened before it came may be in the ring
// of the data plane: it is answered after that was read.
type unanswered struct {
	hello
	from netip.AddrPort
	came time.Duration
}

// mostUnanswered are kept; the latest say the most.
const mostUnanswered = 8

// Drained says that all that happened up to a time was given to Update and Delete
// (Output.Drain). It answers the questions that came before.
func (s *Sender) Drained(now, upTo time.Duration, out *Output) {
	i := 0
	for i < len(s.asked) && s.asked[i].came <= upTo {
		i++
	}
	if i > 0 {
		s.flush(now, out)
	}
	for _, q := range s.asked[:i] {
		s.welcome(now, q.hello, s.store.next, q.from, out)
	}
	s.asked = slices.Delete(s.asked, 0, i)
	out.Drain = out.Drain || len(s.asked) > 0
	s.due(now, out)
}

// keep keeps a question until Drained.
func (s *Sender) keep(q unanswered, out *Output) {
	if len(s.asked) == mostUnanswered {
		s.asked = slices.Delete(s.asked, 0, 1)
	}
	s.asked = append(s.asked, q)
	out.Drain = true
}
