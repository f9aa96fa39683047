// SPDX-License-Identifier: Apache-2.0

package perform

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"imbang/internal/daemon/sync/replicate"
	"imbang/internal/daemon/sync/running"
	"imbang/internal/director"
)

// ReplicationOptions are what a role of imbang's own protocol needs beside its
// configuration.
type ReplicationOptions struct {
	Dir string // of the network namespace (place.Dir)
	By  string // running.ByCommand or running.ByDaemon
	Log *slog.Logger
	// Ready, if set, is called when the socket is open, again after each upgrade of the
	// director, with what performs the role from now on.
	Ready func(*replicate.Replica)
}

// Replication performs a role of imbang's own protocol, for the director of the calling
// thread's network namespace, until the context ends, which is no error.
func Replication(ctx context.Context, c replicate.Config, o ReplicationOptions) (err error) {
	if err := c.Complete(); err != nil {
		return err
	}
	lock, err := running.Take(o.Dir, running.Role{
		Role: running.Replication, PID: os.Getpid(), Interface: c.Interface, Since: time.Now(), By: o.By,
		Replicates: &running.Replicates{As: string(c.Role), Listen: c.Listen, To: c.To, Group: c.Group},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	return throughUpgrades(ctx, o.Log, running.Replication, func() error { return replicateFor(ctx, c, o) })
}

// replicateFor performs a role for the director that there is now. The error wraps
// director.ErrReplaced once that is upgraded.
func replicateFor(ctx context.Context, c replicate.Config, o ReplicationOptions) error {
	d, err := director.Open()
	if err != nil {
		return err
	}
	defer d.Close()
	var r *replicate.Replica
	r, err = replicate.New(c, replicate.Options{
		Table: d, Log: o.Log, Tell: tellChanges,
		Ready: func() {
			if o.Ready != nil {
				o.Ready(r)
			}
		},
	})
	if err != nil {
		return err
	}
	if err = r.Run(ctx); ctx.Err() != nil {
		return err
	}
	if _, now := d.Generation(); errors.Is(now, director.ErrReplaced) {
		return errors.Join(err, now) // whether the role has noticed it or not
	}
	return err
}

// tellChanges opens the source of a master: all openings, changes and ends, and what the
// director's synchronization rule selects.
func tellChanges() (replicate.Source, error) {
	t, err := director.Tell(director.TellRule{Changes: true})
	if err != nil {
		return nil, err
	}
	return t, nil
}
