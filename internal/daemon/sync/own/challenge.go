// SPDX-License-Identifier: Apache-2.0

package own

import (
	"net/netip"
	"time"
)

const (
	challengeEvery = 50 * time.Millisecond // for datagrams of unknown sessions
	nonceLife      = time.Second           // a nonce is replaced, and valid for as long again
)

// challenger asks senders to prove that they are running now: a recorded session cannot
// answer a nonce. It stands for the receiver, or for a sender that looks for others.
type challenger struct {
	id      uint64 // of the receiver
	nonces  [2]uint64
	made    time.Duration // the first nonce
	sent    time.Duration
	started bool
}

// busy reports whether there was a challenge just now: datagrams of others cause no more
// than one at a time.
func (c *challenger) busy(now time.Duration) bool { return c.started && now-c.sent < challengeEvery }

// hello makes a challenge.
func (c *challenger) hello(now time.Duration, random func() uint64) hello {
	if c.nonces[0] == 0 || now-c.made >= nonceLife {
		c.nonces[1] = c.nonces[0]
		if !c.started || now-c.made >= 2*nonceLife {
			c.nonces[1] = 0
		}
		c.nonces[0], c.made = 1+random()>>1, now // 0 is none
	}
	c.started, c.sent = true, now
	return hello{c.id, c.nonces[0]}
}

// proved reports whether a welcome answers one of the last challenges.
func (c *challenger) proved(now time.Duration, w welcome) bool {
	if !c.started || w.receiver != c.id || w.nonce == 0 || now-c.made >= 2*nonceLife {
		return false
	}
	return w.nonce == c.nonces[0] || w.nonce == c.nonces[1] && now-c.made < nonceLife
}

// answered makes the nonces invalid after an authentic answer: a recording of it would prove
// nothing about a session that ends before they expire. Another sender that answered one of
// them is challenged again by what it sends.
func (c *challenger) answered() { c.nonces = [2]uint64{} }

// others are the sessions of a group beside the one that is followed or one's own.
type others struct {
	list []other
}

type other struct {
	session  uint64
	reported time.Duration
}

const (
	mostOthers  = 8
	reportEvery = 10 * time.Second
)

// report appends the alarm of another running sender, not more often than each 10 s.
func (o *others) report(now time.Duration, session uint64, from netip.AddrPort, out *Output) {
	for i := range o.list {
		if x := &o.list[i]; x.session == session {
			if now-x.reported >= reportEvery {
				x.reported = now
				out.Events = append(out.Events, Event{Kind: EventTwoMasters, Peer: from, ID: session})
			}
			return
		}
	}
	if len(o.list) == mostOthers {
		o.list = append(o.list[:0], o.list[1:]...)
	}
	o.list = append(o.list, other{session, now})
	out.Events = append(out.Events, Event{Kind: EventTwoMasters, Peer: from, ID: session})
}

// known reports whether a session proved itself in the last 10 s, and needs no challenge.
func (o *others) known(now time.Duration, session uint64) bool {
	for _, x := range o.list {
		if x.session == session {
			return now-x.reported < reportEvery
		}
	}
	return false
}

// drop removes a session that is no longer another one.
func (o *others) drop(session uint64) {
	for i, x := range o.list {
		if x.session == session {
			o.list = append(o.list[:i], o.list[i+1:]...)
			return
		}
	}
}
