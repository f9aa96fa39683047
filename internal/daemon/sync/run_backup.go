// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/ipv4"

	"imbang/internal/daemon/sync/kernel"
	"imbang/internal/director"
)

// batchRecords is how many entries one call of Synchronize gets at most: it holds the
// director's lock meanwhile.
const batchRecords = 4096

// backupRun is a backup that runs.
type backupRun struct {
	roleRun

	mu      sync.Mutex // held while the table is used
	backup  *Backup
	failing bool // the last call of Synchronize failed
	missing []Missing
}

func (r roleRun) backup(ctx context.Context) error {
	defer closeAll(r.conns)
	b := backupRun{roleRun: r, backup: NewBackup(r.c, r.o.Counts)}
	if err := b.readTimeouts(); err != nil {
		return err
	}
	if err := b.standBy(); err != nil {
		return err
	}
	defer b.standDown()
	p := newParts(ctx)
	for _, conn := range r.conns {
		p.run(func(ctx context.Context) error { return b.receive(ctx, conn) })
	}
	p.run(b.look)
	p.run(b.renew)
	b.ready(len(r.conns))
	return p.wait(ctx)
}

// standByFor is how long the director counts as a backup's without being told again.
const standByFor = 5 * interval

// standBy tells the director that a backup runs, for the setting backup_only.
func (b *backupRun) standBy() error {
	now, err := director.BootTime()
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.o.Table.Standby(now + standByFor)
}

// renew tells the director that the backup goes on, while others may wait for its lock for longer
// than that holds.
func (b *backupRun) renew(ctx context.Context) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			now, err := director.BootTime()
			if err == nil {
				err = b.o.Table.ExtendStandby(now + standByFor)
			}
			if err != nil {
				return err
			}
		}
	}
}

// standDown tells it that none runs any more.
func (b *backupRun) standDown() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.o.Table.Standby(0); err != nil {
		b.o.Log.Warn("the director still counts as a backup for a moment", "error", err)
	}
}

// receive has what comes through one socket synchronized.
func (b *backupRun) receive(ctx context.Context, conn *net.UDPConn) error {
	defer context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Now()) })()
	in := newReceiver(conn, b.c.Group.Is6(), b.c.MaxLen)
	for {
		messages, more, err := in.read(true)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("synchronization's interface %s: receive: %w", b.c.Interface, err)
		}
		if err := b.take(in, messages, more); err != nil {
			return err
		}
	}
}

// take has messages synchronized, with those that are in the socket already.
func (b *backupRun) take(in *receiver, messages []ipv4.Message, more bool) (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	full := false // others get their turn then
	for {
		now := time.Now()
		b.o.Counts.drop(DropSocket, in.losses(messages))
		for i := range messages {
			b.backup.Receive(now, messages[i].Buffers[0][:messages[i].N])
			if len(b.backup.Entries()) > batchRecords-kernel.MaxRecords {
				full = true
				if err := b.synchronize(); err != nil {
					return err
				}
			}
		}
		if !more || full {
			return b.synchronize()
		}
		if messages, more, err = in.read(false); err != nil {
			return b.synchronize() // there is none, or the next call reports it
		}
	}
}

// synchronize has the collected entries synchronized. b.mu is held.
func (b *backupRun) synchronize() error {
	entries := b.backup.Entries()
	if len(entries) == 0 {
		return nil
	}
	errs, err := b.o.Table.Synchronize(entries)
	b.backup.Done(time.Now(), errs, err)
	if err == nil && b.failing {
		b.o.Log.Info("the director is synchronized again")
	}
	if err != nil && !b.failing {
		b.o.Log.Warn("the director cannot be synchronized: entries of the master are dropped", "error", err)
	}
	b.failing = err != nil
	if isOver(err) {
		return fmt.Errorf("synchronize connections: %w", err)
	}
	return nil
}

// look expires, retries, and follows what changes outside.
func (b *backupRun) look(ctx context.Context) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-b.o.Changed:
			err = b.retry(ctx)
		case now := <-ticker.C:
			b.mu.Lock()
			b.backup.Expire(now)
			b.mu.Unlock()
			if err = b.readTimeouts(); err == nil {
				err = b.present()
			}
			if err == nil {
				err = b.standBy()
			}
		}
		if err != nil {
			return err
		}
		b.reportMissing()
	}
}

// retry tries again to enter what has no server.
func (b *backupRun) retry(ctx context.Context) error {
	b.mu.Lock()
	b.backup.Changed()
	b.mu.Unlock()
	for ctx.Err() == nil {
		b.mu.Lock()
		b.backup.Retry(time.Now(), batchRecords)
		done := len(b.backup.Entries()) == 0
		err := b.synchronize()
		b.mu.Unlock()
		if done || err != nil {
			return err
		}
	}
	return nil
}

func (b *backupRun) readTimeouts() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	t, err := b.o.Table.Timeouts()
	if err != nil {
		return fmt.Errorf("read the timeouts: %w", err)
	}
	b.backup.Timeouts = t
	return nil
}

// reportMissing says what is missing, if that has changed.
func (b *backupRun) reportMissing() {
	if b.o.Missing == nil {
		return
	}
	b.mu.Lock()
	missing := b.backup.Missing()
	b.mu.Unlock()
	if !slices.Equal(missing, b.missing) {
		b.missing = missing
		b.o.Missing(missing)
	}
}
