// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"errors"
	"time"

	"imbang/internal/daemon/sync/kernel"
	"imbang/internal/model"
)

// Backup reads messages and says which entries are to be synchronized, as
// ip_vs_process_message does. It is pure, and for one goroutine at a time: entries are
// collected with Receive or Retry, the caller synchronizes Entries, and passes the results
// to Done.
type Backup struct {
	// Timeouts are those of ipvsadm --set, for records without a timeout; zero values are
	// for Linux's defaults.
	Timeouts model.Timeouts

	syncID  uint8
	maxLen  int
	counts  *Counts
	message kernel.Message
	entries []model.Connection
	unbound unbound
}

// NewBackup makes the backup of a complete configuration.
func NewBackup(c Config, counts *Counts) *Backup {
	return &Backup{syncID: c.SyncID, maxLen: c.MaxLen, counts: counts, unbound: newUnbound(maxUnbound)}
}

// Receive reads a datagram, of which a buffer of the configuration's MaxLen got the
// beginning.
func (b *Backup) Receive(now time.Time, datagram []byte) {
	err := b.message.Read(datagram)
	switch {
	case errors.Is(err, kernel.ErrShort):
		b.counts.drop(DropShort, 1)
		return
	case errors.Is(err, kernel.ErrSize):
		reason := DropSize
		if len(datagram) == b.maxLen && kernel.Size(datagram) > b.maxLen {
			reason = DropLong
		}
		b.counts.drop(reason, 1)
		return
	case b.syncID != 0 && b.message.SyncID != b.syncID:
		b.counts.drop(DropSyncID, 1)
		return
	case err != nil: // the records before the fault are used
		b.counts.drop(DropMalformed, 1)
	}
	b.counts.drop(DropOption, b.message.Skipped)
	b.counts.message(now, len(datagram), len(b.message.Records))
	for i := range b.message.Records {
		c, err := connectionOf(&b.message.Records[i], b.Timeouts)
		switch {
		case err != nil:
			b.counts.drop(dropReason(err), 1)
		case b.isStale(&c):
			b.counts.drop(DropStale, 1)
		default:
			b.entries = append(b.entries, c)
		}
	}
}

// isStale reports whether a record is the end of a connection that another one of its flow
// has replaced, which waits for its server. Later records of the flow may have been
// collected since.
func (b *Backup) isStale(c *model.Connection) bool {
	if !b.unbound.supersedes(c) {
		return false
	}
	key := c.Key()
	for i := len(b.entries) - 1; i >= 0; i-- {
		if b.entries[i].Key() == key {
			return b.entries[i].Server != c.Server
		}
	}
	return true
}

// dropReason is why a record is not used.
func dropReason(err error) Reason {
	switch {
	case errors.Is(err, errProtocol):
		return DropProtocol
	case errors.Is(err, errState):
		return DropState
	case errors.Is(err, errEngine):
		return DropEngine
	case errors.Is(err, errHelper):
		return DropHelper
	}
	return DropMethod
}

// Entries are to be synchronized. They are valid until Done.
func (b *Backup) Entries() []model.Connection { return b.entries }

// Done gets the error of each of Entries, as the director's Synchronize reports it; or
// none of them, if the director could not be changed and failed with err.
func (b *Backup) Done(now time.Time, errs []error, err error) {
	for i := range b.entries {
		c := &b.entries[i]
		if err != nil {
			b.counts.drop(DropTable, 1)
			continue
		}
		switch err := errs[i]; {
		case err == nil:
			if b.unbound.remove(c) {
				b.counts.Bound.Add(1)
			}
		case errors.Is(err, model.ErrNoService), errors.Is(err, model.ErrNoServer):
			if !b.unbound.keep(now, c, errors.Is(err, model.ErrNoService)) {
				b.counts.drop(DropUnbound, 1)
			}
		case errors.Is(err, model.ErrTableFull):
			b.counts.drop(DropTableFull, 1)
		default:
			b.counts.drop(DropRefused, 1)
		}
	}
	b.entries = b.entries[:0]
	b.counts.Unbound.Store(int64(b.unbound.len()))
}

// Changed begins a retry of all entries that have no server, as services or servers may
// have been added.
func (b *Backup) Changed() { b.unbound.retryAll() }

// Retry collects entries that have no server until there are n. If there are none then,
// nothing is left to retry.
func (b *Backup) Retry(now time.Time, n int) { b.entries = b.unbound.retry(now, n, b.entries) }

// Expire forgets entries without a server whose time is over.
func (b *Backup) Expire(now time.Time) {
	b.counts.drop(DropExpired, b.unbound.expire(now))
	b.counts.Unbound.Store(int64(b.unbound.len()))
}

// Missing says what is missing, most frequent first.
func (b *Backup) Missing() []Missing { return b.unbound.report() }
