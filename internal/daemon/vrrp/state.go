// SPDX-License-Identifier: Apache-2.0

package vrrp

import (
	"net/netip"
	"time"
)

// State is one of a group.
type State uint8

// States. RFC 9568, 6.4 has Initialize, Backup and Active; Fault is its Initialize, too.
const (
	Initialize State = iota // not started, or shut down
	Fault                   // a local fault
	Backup
	Master // Active in RFC 9568
)

var stateNames = [...]string{"initialize", "fault", "backup", "master"}

func (s State) String() string { return stateNames[s] }

// keepalivedNames are the third argument of its notify scripts.
var keepalivedNames = [...]string{"STOP", "FAULT", "BACKUP", "MASTER"}

// Keepalived is the name that keepalived passes to notify scripts.
func (s State) Keepalived() string { return keepalivedNames[s] }

// Cause is why a state was entered.
type Cause uint8

// Causes.
const (
	CauseStart      Cause = iota + 1 // Start
	CauseSilence                     // no advertisement for the master-down time
	CauseResigned                    // the master resigned
	CauseTake                        // Take
	CauseBetter                      // a better master, and it was yielded at once
	CauseMerged                      // a better master, and the tables are merged
	CauseMergeBound                  // a better master, and the merge took too long
	CauseFault                       // SetFault
	CauseFaultGone                   // likewise
	CauseStall                       // a gap between calls
	CauseGaveUp                      // GiveUp
	CauseShutdown                    // Shutdown
	CausePreempts                    // a master of a lower priority
)

var causeNames = [...]string{
	"", "start", "silence", "master resigned", "take", "better master", "merged", "merge took too long", "fault", "fault gone",
	"stalled", "gave up", "shutdown", "preemption",
}

func (c Cause) String() string { return causeNames[c] }

// Snapshot is all that a machine remembers. It can be written as JSON, and another process
// on this host goes on with it (Restore). Times are those of the clock of the calls; a time
// of 0 is none.
type Snapshot struct {
	State        State
	Priority     uint8
	Faulty       bool
	Synchronized bool
	// GaveUp: after GiveUp or Refrain it does not preempt.
	GaveUp bool
	// Seen is the time of the last call.
	Seen time.Duration

	// Reminders is how many masters' advertisements are still to be answered.
	Reminders uint8

	// Deadline is when a backup becomes master.
	Deadline time.Duration
	// Resigned: the master resigned, and no other one was followed since.
	Resigned bool
	// MasterInterval is the interval of the master's advertisements.
	MasterInterval time.Duration
	// MasterHighest is the highest priority that this master has had.
	MasterHighest uint8
	// Repeats is how often the resignation of GiveUp is still to be sent, next at RepeatAt.
	Repeats  uint8
	RepeatAt time.Duration
	// LowerUntil is the deadline that the last discarded advertisement would have set.
	LowerUntil time.Duration
	// LowerPriority is its priority.
	LowerPriority uint8
	// PreemptAt is the end of the preempt delay, once a lower master was seen.
	PreemptAt time.Duration
	// HoldUntil is the end of the hold.
	HoldUntil time.Duration
	// LeftUntil is until when advertisements of masters that left are ignored.
	LeftUntil time.Duration

	// NextAdvert is when a master advertises.
	NextAdvert time.Duration
	// Cadence is the interval at which it does.
	Cadence time.Duration
	// Slow is how many advertisements are left before a longer interval is used.
	Slow uint8
	// Bridge is the interval that a master advertises instead of a shorter one, until it pauses.
	Bridge time.Duration
	// Lease is until when the addresses can be answered for.
	Lease time.Duration
	// AssertAfter is until when no advertisement answers another master's.
	AssertAfter time.Duration
	// MergeUntil is the bound of the merge that runs.
	MergeUntil time.Duration
	// BetterUntil is when the better master of the merge is considered dead.
	BetterUntil time.Duration
	// AnnounceAt is the time of the next announcement.
	AnnounceAt time.Duration
	// Announced: it is not the second one.
	Announced bool
	// AnnounceAfter is until when other masters do not cause announcements.
	AnnounceAfter time.Duration
	// OtherMaster: another master was reported.
	OtherMaster bool
	// QuietAt is when other masters that were seen are considered gone.
	QuietAt time.Duration

	// TieRouter is the router that decides ties, until TieUntil.
	TieRouter int
	TieUntil  time.Duration

	Routers []RouterSnapshot
	// Held are the addresses that a master took.
	Held []Address
}

// RouterSnapshot is what is remembered of a virtual router.
type RouterSnapshot struct {
	Device string
	ID     uint8
	IPv4   bool
	// Master is the sender of the last advertisement that was followed.
	Master netip.Addr
	// Left is the last master that left.
	Left netip.Addr
	// Differs: the last advertisement had other addresses than the router.
	Differs bool
}
