// SPDX-License-Identifier: Apache-2.0

// Package control is how other processes of a director talk with imbang vrrp: the daemon
// (imbang run), which reports facts and carries out requests as long as it runs, and
// commands. It has the messages, JSON lines on a Unix socket that is root's, and the client.
//
// A daemon that ends, hangs or is upgraded makes no transition: what it reported last holds
// for FactsHold. After that the connection table does not count as the master's (a group
// that awaits it stays backup while there is a master), and Facts.Yield stays as it was.
//
// Fields may be added; unknown ones are ignored, as the two programs may be of different
// versions during an upgrade.
package control

import (
	"path/filepath"
	"time"
)

// FactsHold is how long facts are used after the last report.
const FactsHold = 10 * time.Second

// ReportEvery is how often facts are to be reported at least.
const ReportEvery = time.Second

// MaxLine is the length of a message at most [bytes].
const MaxLine = 64 << 10

// Socket is where the process of a directory (place.VRRPDir) listens.
func Socket(dir string) string { return filepath.Join(dir, "control.sock") }

// Message is one to imbang vrrp: exactly one field is set.
type Message struct {
	// Facts are those of this director as of now.
	Facts *Facts `json:"facts,omitempty"`
	// Merged answers Event.Merge.
	Merged *Merge `json:"merged,omitempty"`
	// GiveUp has groups of which this director is master move to another director. It does
	// not take them back by itself until it was master again, or Reclaim.
	GiveUp *Groups `json:"give_up,omitempty"`
	// Reclaim ends the effect of GiveUp on preemption.
	Reclaim *Groups `json:"reclaim,omitempty"`
	// Busy says that the host will be busy, so that advertisements may be late: masters
	// announce an interval of 1 s until the connection ends, for BusyHold at most. The Reply
	// comes when others know.
	Busy bool `json:"busy,omitempty"`
}

// BusyHold bounds the effect of Message.Busy: the other directors wait longer for a master
// that fails meanwhile.
const BusyHold = 2 * time.Minute

// Facts are what the daemon knows.
type Facts struct {
	// Synchronized is the highest Event.Await since which the whole connection table of the
	// other director has been received; 0: none.
	Synchronized uint64 `json:"synchronized,omitempty"`
	// Apart: for 10 s nothing has been received from the other director's replication, so that
	// its table cannot be awaited.
	Apart bool `json:"apart,omitempty"`
	// Yield: the other director sees more servers. Groups have the lowest priority then.
	Yield bool `json:"yield,omitempty"`
	// YieldUndecided: the daemon does not know Yield since its start, and what was reported before
	// stays.
	YieldUndecided bool `json:"yield_undecided,omitempty"`
	// YieldReason is for people.
	YieldReason string `json:"yield_reason,omitempty"`
}

// Groups are those that a request is about, by name; none: all.
type Groups struct {
	Names []string `json:"names,omitempty"`
}

// Event is one from imbang vrrp: exactly one field is set. A connection begins with an Await,
// the State of each group, and the merges that are under way.
type Event struct {
	// Await is the number of a moment since which the connection table of the other director
	// has to be received before groups preempt: they ceased to be master, or the host stood
	// still. Numbers increase.
	Await uint64 `json:"await,omitempty"`
	// State of a group, as it begins.
	State *State `json:"state,omitempty"`
	// Merge asks for the other director to get the connections of this one: a better master
	// is there, and the group yields with Message.Merged, or after a bound.
	Merge *Merge `json:"merge,omitempty"`
	// Moved says that another director is master of a group that was given up.
	Moved *Moved `json:"moved,omitempty"`
	// Reply answers GiveUp, Reclaim and Busy, to the client that sent it.
	Reply *Reply `json:"reply,omitempty"`
}

// State is that of a group.
type State struct {
	Group    string `json:"group"`
	State    string `json:"state"` // as vrrp.State has it
	Cause    string `json:"cause"`
	Priority uint8  `json:"priority"`
}

// Merge is one that is requested.
type Merge struct {
	Group  string `json:"group"`
	Number uint64 `json:"number"`         // of the merge
	Peer   string `json:"peer,omitempty"` // the better master
}

// Moved is the end of a planned move.
type Moved struct {
	Group string `json:"group"`
	To    string `json:"to"` // the new master's address
	// MS is the time from the resignation to the new master's first advertisement [ms].
	MS float64 `json:"ms"`
}

// Reply is what became of a request.
type Reply struct {
	Groups []string `json:"groups"`          // to which it applied
	Error  string   `json:"error,omitempty"` // why nothing was done
}
