// SPDX-License-Identifier: Apache-2.0

package keep

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"imbang/internal/daemon/sync/perform"
	"imbang/internal/daemon/sync/replicate"
	"imbang/internal/daemon/sync/running"
)

// Replication keeps a role of imbang's own protocol. Its methods are for one goroutine.
type Replication struct {
	Dir string // of the network namespace (place.Dir)
	Log *slog.Logger

	perform func(context.Context, replicate.Config, perform.ReplicationOptions) error // nil: perform.Replication
	config  *replicate.Config                                                         // nil: none
	// key is of the key file when the role was started last; the zero value: it could not be
	// read.
	key     replicate.KeyDigest
	task    task
	replica *atomic.Pointer[replicate.Replica] // of the try under way
}

// Set keeps a role from now on, or none with nil. One whose configuration and key are as
// they were goes on, and so does one whose key file cannot be read any more. It returns in
// words what it stopped.
func (k *Replication) Set(c *replicate.Config, now time.Time) (stopped string) {
	if k.config != nil && c != nil && k.config.Equal(c) {
		if changed, _ := k.KeyChanged(); !changed {
			return ""
		}
	}
	if k.config != nil {
		k.task.end()
		stopped = fmt.Sprintf("replication as %s: stopped", k.config.Role)
	}
	k.config, k.task = c, task{}
	if c != nil {
		k.start(now)
	}
	return stopped
}

// KeyChanged reports whether the key file has another key than when the role was started.
// The error is why the file cannot be read.
func (k *Replication) KeyChanged() (bool, error) {
	if k.config == nil || k.task.waits() {
		return false, nil // the next start reads it
	}
	key, err := k.config.KeyDigest()
	return err == nil && key != k.key, err
}

func (k *Replication) start(now time.Time) {
	// Before the role reads the file: a key that is written meanwhile is taken for another
	// one, which restarts the role once more, rather than for the same.
	k.key, _ = k.config.KeyDigest()
	do := k.perform
	if do == nil {
		do = perform.Replication
	}
	replica := &atomic.Pointer[replicate.Replica]{}
	c, o := *k.config, perform.ReplicationOptions{Dir: k.Dir, By: running.ByDaemon, Log: k.Log, Ready: func(r *replicate.Replica) { replica.Store(r) }}
	k.replica = replica
	k.task.start(now, func(ctx context.Context) error { return do(ctx, c, o) })
}

// Look notices what has become of the role, and starts it again if it failed and its time
// has come. It is to be called about every second. started and failed say so in words.
func (k *Replication) Look(now time.Time) (started, failed string) {
	if k.config == nil {
		return "", ""
	}
	if k.task.waits() {
		if k.task.due(now) {
			k.start(now)
		}
		return "", ""
	}
	runs, failed := k.task.look(now, k.replica.Load() != nil)
	if runs {
		started = fmt.Sprintf("replication as %s: runs, %s", k.config.Role, k.config)
	}
	if failed != "" {
		failed = fmt.Sprintf("replication as %s %s", k.config.Role, failed)
	}
	return started, failed
}

// Configured is what Set was called with last.
func (k *Replication) Configured() *replicate.Config { return k.config }

// Progress is how the role is doing.
func (k *Replication) Progress() Progress { return k.task.Progress }

// Replica performs the role; nil: nothing does now.
func (k *Replication) Replica() *replicate.Replica {
	if k.config == nil || k.task.State != Running {
		return nil
	}
	return k.replica.Load()
}

// Close ends the role.
func (k *Replication) Close() { k.Set(nil, time.Now()) }
