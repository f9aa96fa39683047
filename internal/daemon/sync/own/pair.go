// SPDX-License-Identifier: Apache-2.0

package own

import (
	"errors"
	"net/netip"
	"time"
)

// Pair is one of two directors, each of which sends what client packets did to its entries
// and enters what they did at the other one: a Sender and a Receiver with one clock and one
// socket. Neither changes when addresses move. It is not for concurrent use.
type Pair struct {
	// Sender and Receiver can be called directly, with the Output of the pair.
	Sender   *Sender
	Receiver *Receiver

	config Config
	ended  *ended
}

// NewPair begins a session at a time, and looks for that of the other director, which To
// names. The receiver ends nothing for what the other director does not have: Table is the
// sender's alone.
func NewPair(now time.Duration, c Config) (p *Pair, err error) {
	if len(c.To) != 1 || c.To[0].Addr().IsMulticast() {
		return nil, errors.New("a pair requires one destination, the address of the other director")
	}
	c.pair = true
	p = &Pair{config: c, ended: newEnded(c.Random)}
	c.Table, c.Refresh = nil, nil
	if p.Receiver, err = NewReceiver(now, c); err != nil {
		return nil, err
	}
	p.Receiver.ended, p.Receiver.all = p.ended, !c.Replicated
	return p, p.Renew(now)
}

// Renew begins another session of the sender: what it was given is not complete. The receiver
// goes on.
func (p *Pair) Renew(now time.Duration) error {
	s, err := NewSender(now, p.config)
	if err != nil {
		return err
	}
	s.ended, p.Sender = p.ended, s
	s.next.other, p.Receiver.next.other = &p.Receiver.next, &s.next
	return nil
}

// Tick does what is due.
func (p *Pair) Tick(now time.Duration, out *Output) {
	p.Sender.Tick(now, out)
	p.Receiver.Tick(now, out)
}

// Receive handles a datagram: a receiver's is for the sender.
func (p *Pair) Receive(now time.Duration, from netip.AddrPort, b []byte, out *Output) {
	if len(b) >= headerSize && kind(b[4]) >= kindHello {
		p.Sender.Receive(now, from, b, out)
	} else {
		p.Receiver.Receive(now, from, b, out)
	}
}

// SetServices gives both the configuration, at first and when it changes.
func (p *Pair) SetServices(now time.Duration, services []Service, out *Output) {
	p.Sender.SetServices(now, services, out)
	p.Receiver.SetServices(now, services, out)
}

// Counts are the counters of both.
func (p *Pair) Counts() Counts { return p.Sender.Counts().Add(p.Receiver.Counts()) }

// deadline is when Tick of a machine is due. In a pair the earlier one of both counts.
type deadline struct {
	at    time.Duration
	other *deadline // nil: none
}

func (d *deadline) set(now, at time.Duration, out *Output) {
	d.at = max(at, now)
	out.Next = d.at
	if d.other != nil {
		out.Next = max(min(d.at, d.other.at), now)
	}
}
