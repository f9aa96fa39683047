// SPDX-License-Identifier: Apache-2.0

// Package keep keeps the synchronization roles of a daemon going, those of the kernel's
// protocol (Keeper) and that of imbang's own (Replication): it starts those of a configuration, and starts one that failed again, later after each failure. Nothing in it
// waits for input or output but for a role to end.
package keep

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	synchronize "imbang/internal/daemon/sync"
	"imbang/internal/daemon/sync/perform"
	"imbang/internal/daemon/sync/running"
)

// Role is a role and how it is doing.
type Role struct {
	// Config is as configured, with every default filled in once the role has run.
	Config synchronize.Config
	Progress
	Counts *synchronize.Counts
	// Missing are services and servers that a backup lacks, most frequent first.
	Missing []synchronize.Missing
}

// Change is a change of a role's state; State is empty if it was stopped.
type Change struct {
	Role
	Text string // one line
}

// Keeper keeps roles. Its methods are for one goroutine.
type Keeper struct {
	Dir string // of the network namespace (place.Dir)
	Log *slog.Logger

	perform func(context.Context, synchronize.Config, perform.Options) error // nil: perform.Role
	roles   []*role
	counts  map[synchronize.Role]*synchronize.Counts // since the daemon started
}

// role is one that is configured.
type role struct {
	config  synchronize.Config // as configured
	now     Role
	task    task
	ready   *atomic.Pointer[synchronize.Config] // of the try under way
	missing *atomic.Pointer[[]synchronize.Missing]
}

// Set keeps these roles from now on, at most one of each name, and stops others. A role
// whose configuration is as it was goes on.
func (k *Keeper) Set(configs []synchronize.Config, now time.Time) (changes []Change) {
	var stay []*role
	for _, r := range k.roles {
		if slices.Contains(configs, r.config) {
			stay = append(stay, r)
			continue
		}
		r.task.end()
		r.now.State = ""
		changes = append(changes, Change{r.now, "stopped"})
	}
	k.roles = stay
	for _, c := range configs {
		if slices.ContainsFunc(k.roles, func(r *role) bool { return r.config == c }) {
			continue
		}
		r := &role{config: c, now: Role{Config: c, Counts: k.countsOf(c.Role)}}
		k.roles = append(k.roles, r)
		k.start(r, now)
	}
	slices.SortFunc(k.roles, func(a, b *role) int {
		return slices.Index(running.Roles, string(a.config.Role)) - slices.Index(running.Roles, string(b.config.Role))
	})
	return changes
}

func (k *Keeper) countsOf(r synchronize.Role) *synchronize.Counts {
	if k.counts == nil {
		k.counts = map[synchronize.Role]*synchronize.Counts{}
	}
	if k.counts[r] == nil {
		k.counts[r] = &synchronize.Counts{}
	}
	return k.counts[r]
}

func (k *Keeper) start(r *role, now time.Time) {
	do := k.perform
	if do == nil {
		do = perform.Role
	}
	ready, missing := &atomic.Pointer[synchronize.Config]{}, &atomic.Pointer[[]synchronize.Missing]{}
	c, o := r.config, perform.Options{
		Dir: k.Dir, By: running.ByDaemon, Log: k.Log, Counts: r.now.Counts,
		Ready:   func(c synchronize.Config) { ready.Store(&c) },
		Missing: func(m []synchronize.Missing) { m = slices.Clone(m); missing.Store(&m) },
	}
	r.ready, r.missing = ready, missing
	r.task.start(now, func(ctx context.Context) error { return do(ctx, c, o) })
	r.now.Progress = r.task.Progress
}

// Look notices what has become of roles, and starts those again that failed and whose time
// has come. It is to be called about every second.
func (k *Keeper) Look(now time.Time) (changes []Change) {
	for _, r := range k.roles {
		changes = append(changes, k.look(r, now)...)
	}
	return changes
}

func (k *Keeper) look(r *role, now time.Time) (changes []Change) {
	if r.task.waits() {
		if r.task.due(now) {
			k.start(r, now)
		}
		return nil
	}
	if m := r.missing.Load(); m != nil {
		r.now.Missing = *m
	}
	c := r.ready.Load()
	runs, failed := r.task.look(now, c != nil)
	if runs {
		r.now.Config = *c
		r.now.Progress = Progress{State: Running, Since: now}
		changes = append(changes, Change{r.now, fmt.Sprintf("runs on %s, %s port %d, synchronization ID %d", c.Interface, c.Group, c.Port, c.SyncID)})
	}
	r.now.Progress = r.task.Progress
	if failed != "" {
		r.now.Missing = nil
		changes = append(changes, Change{r.now, failed})
	}
	return changes
}

// Roles are the roles that are kept, the master first.
func (k *Keeper) Roles() (all []Role) {
	for _, r := range k.roles {
		all = append(all, r.now)
	}
	return all
}

// Configured is what Set was called with last, in the order of Roles.
func (k *Keeper) Configured() (all []synchronize.Config) {
	for _, r := range k.roles {
		all = append(all, r.config)
	}
	return all
}

// Close ends all roles.
func (k *Keeper) Close() { k.Set(nil, time.Now()) }
