// SPDX-License-Identifier: Apache-2.0

package vrrp

import (
	"net/netip"
	"time"
)

// ActionKind is what is to be done.
type ActionKind uint8

// Actions, with the fields of Action that belong to them.
const (
	// ActionLease: the lease is fresh until Until; 0: it ends now. Without a fresh lease the
	// host must not answer for the addresses.
	ActionLease ActionKind = iota + 1
	// ActionAdvertise: send Advertisement by Router.
	ActionAdvertise
	// ActionTake: configure Addresses, with Accept; that may be done already.
	ActionTake
	// ActionRelease: remove Addresses that ActionTake configured, also in an earlier process.
	// They may be gone already; those that the host has otherwise stay.
	ActionRelease
	// ActionAnnounce: send gratuitous ARP requests, or unsolicited neighbour advertisements
	// with Override, for Addresses, Repeat times.
	ActionAnnounce
	// ActionNotify: State was entered for Cause, with Priority; for notify scripts.
	ActionNotify
	// ActionMerge: exchange connection tables with the better master Peer, seen by Router,
	// and call Merged.
	ActionMerge
	// ActionReport: log Event; of Router and Peer where there is one.
	ActionReport
)

var actionNames = [...]string{"", "lease", "advertise", "take", "release", "announce", "notify", "merge", "report"}

func (k ActionKind) String() string { return actionNames[k] }

// Event is what is reported.
type Event uint8

// Events.
const (
	EventOtherMaster     Event = iota + 1 // another master is seen
	EventOtherMasterGone                  // it is not seen any more
	EventAddressesDiffer                  // an advertisement has other addresses
	EventAddressesAgree                   // it has the same again
	EventOwnAddress                       // an advertisement came from the own address
	EventStalled                          // the process or the host stood still
	EventMergeAborted                     // the better master vanished, or is not better any more
)

var eventNames = [...]string{
	"", "another master", "the other master is gone", "addresses differ", "addresses agree", "advertisement from the own address",
	"stalled", "merge aborted",
}

func (e Event) String() string { return eventNames[e] }

// Action is one thing to do.
type Action struct {
	Kind          ActionKind
	Router        int // index into Config.Routers
	Advertisement Advertisement
	Addresses     []Address
	Accept        bool
	Repeat        int
	Until         time.Duration
	State         State
	Cause         Cause
	Priority      uint8
	Event         Event
	Peer          netip.Addr
}

// Output is what is to be done after a call, in this order. It is valid until the next call.
type Output struct {
	Actions []Action
	// Next is when Tick is due, at the latest; 0: it is not.
	Next time.Duration
}

// Reset empties it, and keeps the memory.
func (o *Output) Reset() { o.Actions, o.Next = o.Actions[:0], 0 }

func (o *Output) add(a Action) { o.Actions = append(o.Actions, a) }
