// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"imbang/internal/daemon/operator"
	"imbang/internal/daemon/pair"
	"imbang/internal/daemon/sync/replicate"
	"imbang/internal/daemon/vrrp/control"
)

// elector is a process of imbang vrrp as the daemon meets it.
type elector struct {
	*testing.T
	conn net.Conn
	in   *json.Decoder
}

func (e *elector) send(event control.Event) {
	e.Helper()
	if err := json.NewEncoder(e.conn).Encode(event); err != nil {
		e.Fatal(err)
	}
}

// next is the next message that f accepts.
func (e *elector) next(what string, f func(m *control.Message) bool) {
	e.Helper()
	_ = e.conn.SetReadDeadline(time.Now().Add(time.Minute))
	for {
		var m control.Message
		if err := e.in.Decode(&m); err != nil {
			e.Fatalf("%s: %v", what, err)
		}
		if f(&m) {
			return
		}
	}
}

// copies is a role of replication.
type copies struct {
	synced atomic.Pointer[time.Time] // as of when the other table is here
	behind atomic.Int32              // tries until tables are merged
	lacks  atomic.Bool               // the other director cannot enter all
	apart  atomic.Bool               // it is not heard
}

func (c *copies) Following() bool { return !c.apart.Load() }

func (c *copies) Synced(since time.Time) bool {
	at := c.synced.Load()
	return at != nil && !at.Before(since)
}

func (c *copies) Merge(context.Context) error {
	if c.behind.Add(-1) >= 0 {
		return errors.New("the other director is not there")
	}
	if c.lacks.Load() {
		return fmt.Errorf("%w: 10.0.0.2 lacks 3 entries", replicate.ErrLacking)
	}
	return nil
}

func startFailover(t *testing.T) (*failover, *elector) {
	t.Helper()
	dir := t.TempDir()
	l, err := net.Listen("unix", control.Socket(dir))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	f := newFailover(ctx, dir, slog.New(slog.DiscardHandler))
	done := make(chan struct{})
	go func() { f.run(); close(done) }()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		conn.Close()
		l.Close()
		<-done
	})
	return f, &elector{t, conn, json.NewDecoder(conn)}
}

// The table counts as synchronized when it has been received as of the moment that imbang
// vrrp began to wait, not of an earlier one; without a pair, at once.
func TestReportSynchronized(t *testing.T) {
	f, e := startFailover(t)
	c := &copies{}
	synchronized := func(n uint64) func(m *control.Message) bool {
		return func(m *control.Message) bool { return m.Facts != nil && m.Facts.Synchronized == n }
	}
	early := time.Now()
	c.synced.Store(&early)
	f.say(true, c, false, true)
	e.send(control.Event{Await: 3})
	e.next("the table is older", synchronized(0))
	now := time.Now().Add(time.Second)
	c.synced.Store(&now)
	f.say(true, c, false, true) // again, as the loop does
	e.next("the table is here", synchronized(3))
	f.say(true, c, true, true)
	e.next("the other one sees more servers", func(m *control.Message) bool { return m.Facts != nil && m.Facts.Yield })
	f.say(true, nil, false, true)
	e.next("replication does not run", synchronized(0))
	f.say(false, nil, false, true)
	e.send(control.Event{Await: 4})
	e.next("no pair", synchronized(4))
}

// A director that is not heard for a time is apart, until it is heard.
func TestReportApart(t *testing.T) {
	f := newFailover(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler))
	c := &copies{}
	f.say(true, c, false, true)
	f.event(control.Event{Await: 1})
	at := time.Now()
	is := func(what string, after time.Duration, want bool) {
		t.Helper()
		f.say(true, c, false, true)
		f.at = at.Add(after)
		if facts, known := f.facts(at.Add(after)); !known || facts.Apart != want {
			t.Errorf("%s: %+v, %t", what, facts, known)
		}
	}
	is("heard", 0, false)
	c.apart.Store(true)
	is("not heard", time.Second, false)
	is("not yet long", apartAfter, false)
	is("for long", time.Second+apartAfter, true)
	c.apart.Store(false)
	is("heard again", 2*apartAfter, false)
	c.apart.Store(true)
	is("not heard again", 2*apartAfter+time.Second, false)
}

// A merge is answered when the other director has everything, and only while it is wanted.
func TestMergeWaits(t *testing.T) {
	f, e := startFailover(t)
	c := &copies{}
	c.behind.Store(3)
	f.say(true, c, false, true)
	e.send(control.Event{Merge: &control.Merge{Group: "web", Number: 7}})
	e.next("merged", func(m *control.Message) bool { return m.Merged != nil && m.Merged.Number == 7 })
	if n := c.behind.Load(); n >= 0 {
		t.Errorf("merged, and %d tries are left", n+1)
	}
	c.lacks.Store(true)
	e.send(control.Event{Merge: &control.Merge{Group: "web", Number: 9}})
	e.next("merged, but for what cannot be entered", func(m *control.Message) bool { return m.Merged != nil && m.Merged.Number == 9 })
	c.behind.Store(1 << 30)
	e.send(control.Event{Merge: &control.Merge{Group: "web", Number: 8}})
	await := func(what string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal(what)
			}
		}
	}
	await("it does not begin", func() bool { return c.behind.Load() < 1<<30 })
	e.send(control.Event{State: &control.State{Group: "web", State: "backup"}})
	await("it goes on", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.merges) == 0
	})
}

// Facts of a loop that hangs are not reported.
func TestLoopHangs(t *testing.T) {
	f := newFailover(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler))
	f.say(false, nil, true, true)
	f.event(control.Event{Await: 1})
	if facts, known := f.facts(time.Now()); !known || facts.Synchronized != 1 || !facts.Yield || facts.YieldUndecided {
		t.Errorf("%+v, %v", facts, known)
	}
	if _, known := f.facts(time.Now().Add(loopSilent + time.Second)); known {
		t.Error("facts of a loop that hangs")
	}
}

// A daemon that has just started, and has a peer, does not know whether it yields.
func TestYieldUndecided(t *testing.T) {
	f := newFailover(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler))
	f.event(control.Event{Await: 1})
	d := &Daemon{}
	if f.say(true, nil, d.yields(), d.yieldsDecided()); !d.yieldsDecided() {
		t.Error("without a peer")
	}
	d.pair.config = &pair.Config{Hold: time.Second}
	d.pair.yield.Hold = time.Second
	f.say(true, nil, d.yields(), d.yieldsDecided())
	if facts, known := f.facts(time.Now()); !known || !facts.YieldUndecided {
		t.Errorf("%+v", facts)
	}
	now := time.Now()
	d.decideYield(&pair.Peer{}, now)
	d.decideYield(&pair.Peer{}, now.Add(time.Second))
	f.say(true, nil, d.yields(), d.yieldsDecided())
	if facts, _ := f.facts(time.Now()); facts.YieldUndecided || facts.Yield {
		t.Errorf("the peer is not reached: %+v", facts)
	}
}

// quorum_up of a new service waits until its virtual address is here, and is not run if the quorum is
// lost first. A mark can be of any address.
func TestDueWaitsForAddress(t *testing.T) {
	said := filepath.Join(t.TempDir(), "said")
	of := func(name, target string) string {
		return fmt.Sprintf("  - {name: %[1]s, %[2]s, quorum_up: [/bin/sh, -c, echo %[1]s >>%[3]s], servers: [{name: %[1]s1, address: 172.16.0.1, weight: 1}]}\n", name, target, said)
	}
	d := newDaemon(t, "services:\n"+of("here", `virtual: "10.20.0.1:80"`)+of("moves", `virtual: "10.20.0.2:80"`)+of("mark", "mark: 7")+of("excluded", `virtual: "10.20.0.3:80"`)+`
vrrp:
  groups:
    - name: g
      routers: [{device: lo, id: 5, addresses: [10.20.0.2]}]
      addresses: [{address: 10.20.0.3, device: lo}]
`)
	var e *elector
	d.failover, e = startFailover(t)
	changed := make(chan struct{}, 8)
	d.failover.mu.Lock()
	d.failover.changed = func() { changed <- struct{}{} }
	d.failover.mu.Unlock()
	d.due = map[operator.ServiceID]bool{}
	d.enterDue(d.core.Begun.New)
	become := func(state string) {
		e.send(control.Event{State: &control.State{Group: "g", State: state}})
		<-changed
	}
	ran := func(what, want string, due int) {
		t.Helper()
		d.runDue(time.Now())
		if !d.hooks.Wait(time.Minute) {
			t.Fatal("a command does not end")
		}
		b, _ := os.ReadFile(said)
		words := strings.Fields(string(b))
		if slices.Sort(words); strings.Join(words, " ") != want || len(d.due) != due {
			t.Errorf("%s: ran %q, want %q; due are %v", what, words, want, d.due)
		}
	}
	ran("imbang vrrp has said nothing", "here", 3)
	become("backup")
	ran("backup", "here", 3)
	ids, err := d.core.Find("excluded1", "")
	if err != nil || len(ids) != 1 {
		t.Fatal(ids, err)
	}
	d.core.Order(ids[0], operator.State{Drain: &operator.Drain{}}, "root", "", time.Now())
	ran("the quorum is lost", "here", 2)
	become("master")
	ran("master", "here mark moves", 0)
	ran("master, again", "here mark moves", 0)
}
