// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"sync/atomic"
	"time"
)

// Reason is why a message or an entry was dropped.
type Reason uint8

// Reasons. A master drops entries, and messages when they cannot be sent. A backup drops
// messages, or the entries in them.
const (
	DropQueue   Reason = iota // entries: sync_qlen_max messages were waiting
	DropVersion               // entries: IPv6 or an engine's template in version 0
	DropEntry                 // entries: a record cannot express it
	DropSend                  // messages: the socket reported an error

	DropSocket    // messages: the socket's buffer was full
	DropShort     // messages: shorter than a header
	DropLong      // messages: longer than the backup's greatest length
	DropSize      // messages: not as long as they say
	DropSyncID    // messages: of another synchronization ID
	DropMalformed // messages: from a malformed record on
	DropOption    // entries: with an option that has to be understood and is not
	DropProtocol  // entries: of an unsupported protocol
	DropState     // entries: in a state that the protocol has not
	DropEngine    // entries: of an unknown persistence engine
	DropHelper    // entries: that an application helper controls
	DropMethod    // entries: without a server, or by an unknown forwarding method
	DropStale     // entries: the end of a connection that was replaced
	DropRefused   // entries: the director does not accept them
	DropTableFull // entries: there is no room for connections
	DropTable     // entries: the director could not be changed
	DropUnbound   // entries: without a server, and too many of these are kept
	DropExpired   // entries: kept without a server until they expired
	reasons
)

var reasonNames = [reasons]string{
	DropQueue: "queue_full", DropVersion: "version", DropEntry: "entry", DropSend: "send_error",
	DropSocket: "socket_full", DropShort: "short", DropLong: "too_long", DropSize: "size", DropSyncID: "syncid",
	DropMalformed: "malformed", DropOption: "option", DropProtocol: "protocol", DropState: "state", DropEngine: "engine",
	DropHelper: "helper", DropMethod: "method", DropStale: "stale", DropRefused: "refused", DropTableFull: "table_full",
	DropTable: "table_error", DropUnbound: "unbound_full", DropExpired: "unbound_expired",
}

func (r Reason) String() string { return reasonNames[r] }

// Reasons are all of them.
func Reasons() []Reason {
	all := make([]Reason, reasons)
	for i := range all {
		all[i] = Reason(i)
	}
	return all
}

// OfMessages reports whether whole messages are dropped for a reason, and not entries.
func (r Reason) OfMessages() bool {
	return r >= DropSend && r <= DropMalformed
}

// Counts are the counters of one role, which may be read while it runs. The zero value is
// ready.
type Counts struct {
	Messages atomic.Uint64 // sent by a master, used by a backup
	Records  atomic.Uint64 // in these
	Bytes    atomic.Uint64 // of these, without the headers of IP and UDP
	Lost     atomic.Uint64 // entries that the director's ring had no room for; of a master
	Unbound  atomic.Int64  // entries that wait for their server now; of a backup
	Bound    atomic.Uint64 // entries that got their server after a wait; of a backup

	dropped [reasons]atomic.Uint64
	last    atomic.Int64 // [ns] since 1970
}

// Dropped is how many messages or entries were dropped for a reason.
func (c *Counts) Dropped(r Reason) uint64 { return c.dropped[r].Load() }

func (c *Counts) drop(r Reason, n int) {
	if n > 0 {
		c.dropped[r].Add(uint64(n))
	}
}

// Last is when the last message was sent or used; the zero time if none was.
func (c *Counts) Last() time.Time {
	ns := c.last.Load()
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// message counts one that was sent or used.
func (c *Counts) message(now time.Time, bytes, records int) {
	c.Messages.Add(1)
	c.Records.Add(uint64(records))
	c.Bytes.Add(uint64(bytes))
	c.last.Store(now.UnixNano())
}
