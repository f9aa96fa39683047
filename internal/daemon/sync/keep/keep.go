// SPDX-License-Identifier: Apache-2.0

// Package keep keeps the synchronization roles of a daemon going: it starts those of a
// configuration, and starts one that failed again, later after each failure. Nothing in it
// waits for input or output but for a role to end.
package keep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	synchronize "imbang/internal/daemon/sync"
	"imbang/internal/daemon/sync/perform"
	"imbang/internal/daemon/sync/running"
)

const (
	// firstRetry is the time after which a role that failed is started again; it doubles
	// with each failure in a row, up to lastRetry.
	firstRetry = time.Second
	lastRetry  = time.Minute
	// steady is how long a role runs before its failures are forgotten.
	steady = time.Minute
	// endPatience is how long a role may take to end. One that takes longer keeps its lock,
	// and the next start fails until it has ended.
	endPatience = 5 * time.Second
)

// State is what a role is doing.
type State string

// States.
const (
	Starting State = "starting" // its sockets are not open yet
	Running  State = "running"
	Failed   State = "failed" // it is started again
)

// Role is a role and how it is doing.
type Role struct {
	// Config is as configured, with every default filled in once the role has run.
	Config synchronize.Config
	State  State
	Since  time.Time // of the state
	Err    error     // of Failed: why
	Retry  time.Time // of Failed: when it is started again
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
	config   synchronize.Config // as configured
	now      Role
	failures int // in a row
	run      *run
}

// run is one try of a role.
type run struct {
	cancel  context.CancelFunc
	done    chan struct{} // closed when it has ended
	err     error         // why; to be read after done
	ready   atomic.Pointer[synchronize.Config]
	missing atomic.Pointer[[]synchronize.Missing]
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
		r.end()
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
	ctx, cancel := context.WithCancel(context.Background())
	one := &run{cancel: cancel, done: make(chan struct{})}
	do := k.perform
	if do == nil {
		do = perform.Role
	}
	c, o := r.config, perform.Options{
		Dir: k.Dir, By: running.ByDaemon, Log: k.Log, Counts: r.now.Counts,
		Ready:   func(c synchronize.Config) { one.ready.Store(&c) },
		Missing: func(m []synchronize.Missing) { m = slices.Clone(m); one.missing.Store(&m) },
	}
	go func() {
		defer close(one.done)
		one.err = do(ctx, c, o)
	}()
	r.run = one
	r.now.State, r.now.Since, r.now.Err, r.now.Retry = Starting, now, nil, time.Time{}
}

// end stops the try that is under way.
func (r *role) end() {
	if r.run == nil {
		return
	}
	r.run.cancel()
	select {
	case <-r.run.done:
	case <-time.After(endPatience):
	}
	r.run = nil
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
	if r.run == nil {
		if !now.Before(r.now.Retry) {
			k.start(r, now)
		}
		return nil
	}
	if m := r.run.missing.Load(); m != nil {
		r.now.Missing = *m
	}
	if c := r.run.ready.Load(); c != nil && r.now.State == Starting {
		r.now.Config, r.now.State, r.now.Since = *c, Running, now
		changes = append(changes, Change{r.now, fmt.Sprintf("runs on %s, %s port %d, synchronization ID %d", c.Interface, c.Group, c.Port, c.SyncID)})
	}
	select {
	case <-r.run.done:
		return append(changes, k.failed(r, now))
	default:
	}
	if r.now.State == Running && now.Sub(r.now.Since) > steady {
		r.failures = 0
	}
	return changes
}

// errEnded is the error of a role that ended and gave none.
var errEnded = errors.New("it ended")

func (k *Keeper) failed(r *role, now time.Time) Change {
	err := r.run.err
	if err == nil {
		err = errEnded
	}
	r.run.cancel()
	r.run = nil
	wait := lastRetry
	if r.failures < 6 { // 2^6 s are more than lastRetry
		wait = firstRetry << r.failures
	}
	r.failures++
	r.now.State, r.now.Since, r.now.Err, r.now.Retry, r.now.Missing = Failed, now, err, now.Add(wait), nil
	return Change{r.now, fmt.Sprintf("failed: %v. It is started again in %v", err, wait)}
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
