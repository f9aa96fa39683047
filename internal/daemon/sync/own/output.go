// SPDX-License-Identifier: Apache-2.0

package own

import (
	"net/netip"
	"time"

	"imbang/internal/model"
)

// Datagram is one to be sent.
type Datagram struct {
	To    netip.AddrPort
	Bytes []byte
}

// Change is one of the receiver's connection table.
type Change struct {
	Delete bool
	// Swept: it was read from the own table, and nothing was received of it (Delete).
	Swept bool
	// Known, of a pair: the entry was here. If it is not any more it has ended, and is not entered.
	Known bool
	// Conn is the entry. Of a connection Timeout is not transferred, of a template Connections.
	Conn model.Connection
}

// EventKind is what a machine reports.
type EventKind uint8

// Kinds of events.
const (
	// EventFollowing: the receiver follows a session from now on.
	EventFollowing EventKind = iota + 1
	// EventSynced: the receiver has the whole table.
	EventSynced
	// EventSessionLost: the sender ended its session or is silent.
	EventSessionLost
	// EventFellBehind: what is missing cannot be sent again; a bulk transfer was requested.
	EventFellBehind
	// EventTwoMasters: another sender of the group is running.
	EventTwoMasters
	// EventSkew: services or servers differ between sender and receiver. Differences names them.
	EventSkew
	// EventSkewEnded: they are the same again.
	EventSkewEnded
	// EventReceiverJoined and EventReceiverLost: a receiver registered or is silent.
	EventReceiverJoined
	EventReceiverLost
	// EventOtherRole: a director of the group is of a pair, and this one is not, or the other
	// way round.
	EventOtherRole
)

var eventNames = map[EventKind]string{
	EventFollowing: "following", EventSynced: "synced", EventSessionLost: "session lost", EventFellBehind: "fell behind",
	EventTwoMasters: "two masters", EventSkew: "configuration differs", EventSkewEnded: "configuration is the same",
	EventReceiverJoined: "receiver joined", EventReceiverLost: "receiver lost",
	EventOtherRole: "another role",
}

func (k EventKind) String() string { return eventNames[k] }

// Alarm reports whether an operator has to act on it.
func (k EventKind) Alarm() bool {
	return k == EventTwoMasters || k == EventSkew || k == EventReceiverLost || k == EventOtherRole
}

// Event is a report.
type Event struct {
	Kind        EventKind
	Peer        netip.AddrPort // the other director
	ID          uint64         // its session, or the number of a receiver
	Differences []string       // of EventSkew, sorted
}

// Reached says that a receiver has applied all that was sent before a barrier.
type Reached struct {
	Barrier  uint64 // as Sender.Barrier returned it
	Receiver uint64
	Peer     netip.AddrPort
}

// Output is what is to be done after a call of a machine, in this order: Apply, then
// Datagrams (an acknowledgement says that changes were applied), then the rest. All in
// it is valid until Reset: who keeps a Change longer clones its Control.
type Output struct {
	Datagrams []Datagram
	Apply     []Change
	Events    []Event
	Reached   []Reached
	// Drain: the caller gives Update and Delete what has happened up to now, if they do not have
	// it yet, and calls Sender.Drained.
	Drain bool
	// Next is when Tick is due, at the latest.
	Next time.Duration

	bytes    []byte
	controls []model.Control
}

// Reset empties it, and keeps the memory.
func (o *Output) Reset() {
	o.Datagrams, o.Apply, o.Events, o.Reached = o.Datagrams[:0], o.Apply[:0], o.Events[:0], o.Reached[:0]
	o.Drain = false
	o.bytes, o.controls = o.bytes[:0], o.controls[:0]
}

// send copies a datagram, for one or several destinations. Memory that append replaces
// stays valid for what refers to it.
func (o *Output) send(b []byte, to ...netip.AddrPort) {
	start := len(o.bytes)
	o.bytes = append(o.bytes, b...)
	for _, t := range to {
		o.Datagrams = append(o.Datagrams, Datagram{t, o.bytes[start:len(o.bytes):len(o.bytes)]})
	}
}

// control keeps one of a change.
func (o *Output) control(c model.Control) *model.Control {
	o.controls = append(o.controls, c)
	return &o.controls[len(o.controls)-1]
}
