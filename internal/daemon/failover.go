// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"imbang/internal/daemon/place"
	"imbang/internal/daemon/sync/replicate"
	"imbang/internal/daemon/vrrp/control"
)

// Times of failover.
const (
	// factsLook is how often facts are found out while they are awaited.
	factsLook = 100 * time.Millisecond
	// loopSilent is when a loop counts as hanging: its facts are not reported any more.
	loopSilent = 5 * time.Second
	// mergeRetry is how long a merge waits for the other director to be a receiver again.
	mergeRetry = 50 * time.Millisecond
	// mergeLongest ends a merge that nobody waits for any more: imbang vrrp has a bound.
	mergeLongest = time.Minute
	// apartAfter is how long the other director is not heard until its table is not awaited.
	apartAfter = 10 * time.Second
)

// replicated is what failover uses of the role of replication.
type replicated interface {
	// Synced reports whether the whole table of the other director is here as of a time.
	Synced(since time.Time) bool
	// Following reports whether the other director is heard.
	Following() bool
	// Merge waits until both directors have what is in either table.
	Merge(ctx context.Context) error
}

// failover keeps imbang vrrp informed, which decides which director has the addresses. It is
// used by the daemon's loop, by its own goroutine, and by that of the client.
type failover struct {
	log    *slog.Logger
	client *control.Client
	wake   chan struct{}

	mu      sync.Mutex
	at      time.Time  // when the loop said the following
	pair    bool       // replication is configured in both directions
	replica replicated // nil: it does not run
	yields  bool
	decided bool      // whether yields is known
	await   uint64    // the table has to be received
	since   time.Time // since when
	merges  map[uint64]context.CancelFunc
	changed func()            // the state of a group has; must not block
	groups  map[uint64]string // of merges
	ctx     context.Context

	apart time.Time // since when the other director is not heard; zero: it is; only for facts
}

func newFailover(ctx context.Context, dir string, log *slog.Logger) *failover {
	f := &failover{log: log, wake: make(chan struct{}, 1), merges: map[uint64]context.CancelFunc{}, groups: map[uint64]string{}, changed: func() {}, ctx: ctx}
	f.client = control.NewClient(control.Socket(dir), f.event)
	return f
}

// run reports until the context ends.
func (f *failover) run() {
	var under sync.WaitGroup
	defer under.Wait()
	under.Go(func() { f.client.Run(f.ctx) })
	tick := time.NewTicker(factsLook)
	defer tick.Stop()
	var last control.Facts
	var reported time.Time
	for {
		now := time.Now()
		if facts, known := f.facts(now); known && (facts != last || now.Sub(reported) >= control.ReportEvery) {
			f.client.Report(facts)
			last, reported = facts, now
		}
		select {
		case <-f.ctx.Done():
			return
		case <-f.wake:
			reported = time.Time{} // a process that is new needs them, too
		case <-tick.C:
		}
	}
}

// say is called by the loop about every second.
func (f *failover) say(pair bool, r replicated, yields, decided bool) {
	f.mu.Lock()
	f.at, f.pair, f.replica, f.yields, f.decided = time.Now(), pair, r, yields, decided
	f.mu.Unlock()
}

// states are those of the groups, by name; nil: no process is connected.
func (f *failover) states() map[string]string {
	if f == nil {
		return nil
	}
	return f.client.States()
}

// facts are those to be reported; known is false if the loop hangs or no process has said
// what it waits for.
func (f *failover) facts(now time.Time) (out control.Facts, known bool) {
	f.mu.Lock()
	at, pair, r, await, since := f.at, f.pair, f.replica, f.await, f.since
	out.Yield, out.YieldUndecided = f.yields, !f.decided
	f.mu.Unlock()
	if await == 0 || now.Sub(at) > loopSilent {
		return out, false
	}
	switch {
	case r == nil || r.Following():
		f.apart = time.Time{}
	case f.apart.IsZero():
		f.apart = now
	}
	out.Apart = !f.apart.IsZero() && now.Sub(f.apart) >= apartAfter
	if !pair || r != nil && r.Synced(since) {
		out.Synchronized = await
	}
	return out, true
}

// event is called by the client.
func (f *failover) event(e control.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.State != nil {
		f.changed()
	}
	switch {
	case e.Await != 0:
		f.await, f.since = e.Await, time.Now()
		select {
		case f.wake <- struct{}{}:
		default:
		}
	case e.Merge != nil:
		if f.merges[e.Merge.Number] == nil {
			ctx, cancel := context.WithTimeout(f.ctx, mergeLongest)
			f.merges[e.Merge.Number], f.groups[e.Merge.Number] = cancel, e.Merge.Group
			go f.merge(ctx, *e.Merge)
		}
	case e.State != nil && e.State.State != "master":
		for number, group := range f.groups {
			if group == e.State.Group {
				f.endMerge(number)
			}
		}
	}
}

// endMerge is called with the lock.
func (f *failover) endMerge(number uint64) {
	if cancel := f.merges[number]; cancel != nil {
		cancel()
	}
	delete(f.merges, number)
	delete(f.groups, number)
}

// merge answers a request when both directors have the connections of either. After a split
// they have to find each other first.
func (f *failover) merge(ctx context.Context, m control.Merge) {
	defer func() {
		f.mu.Lock()
		f.endMerge(m.Number)
		f.mu.Unlock()
	}()
	began := time.Now()
	for ctx.Err() == nil {
		f.mu.Lock()
		pair, r := f.pair, f.replica
		f.mu.Unlock()
		if !pair {
			f.client.Merged(m) // there is nothing to wait for
			return
		}
		if r != nil {
			err := r.Merge(ctx)
			switch {
			case err == nil:
				f.log.Info("both directors have all connections", "group", m.Group, "took", time.Since(began))
			case errors.Is(err, replicate.ErrLacking): // more of them would not come with time
				f.log.Warn("both directors have all connections that they can enter", "group", m.Group, "took", time.Since(began), "error", err)
			}
			if err == nil || errors.Is(err, replicate.ErrLacking) {
				f.client.Merged(m)
				return
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(mergeRetry):
		}
	}
}

// beginFailover begins to keep imbang vrrp informed, whether it runs or not.
func (d *Daemon) beginFailover(ctx context.Context) error {
	dir, err := place.VRRPDir()
	if err != nil {
		return err
	}
	d.failover = newFailover(ctx, dir, d.Log)
	d.failover.changed = d.hear
	d.keepFailover()
	go d.failover.run()
	return nil
}

// keepFailover says what the loop knows.
func (d *Daemon) keepFailover() {
	var r replicated
	if one := d.own.Replica(); one != nil {
		r = one
	}
	c := d.own.Configured()
	d.failover.say(c != nil && c.Role == replicate.RolePair, r, d.yields(), d.yieldsDecided())
}
