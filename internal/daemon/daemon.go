// SPDX-License-Identifier: Apache-2.0

// Package daemon keeps a director alive: it applies the configuration, checks the real
// servers, follows the operator's orders, and tells what happens. One goroutine, the
// loop, has all of the state; everything else sends it results and requests. The
// director works without it: killing it changes nothing for packets.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/check"
	"imbang/internal/daemon/config"
	"imbang/internal/daemon/core"
	"imbang/internal/daemon/events"
	"imbang/internal/daemon/hooks"
	"imbang/internal/daemon/operator"
	"imbang/internal/daemon/place"
	"imbang/internal/daemon/plan"
	"imbang/internal/daemon/steer"
	"imbang/internal/daemon/sync/keep"
	"imbang/internal/director"
	"imbang/internal/host"
	"imbang/internal/model"
)

// Options are those of imbang run.
type Options struct {
	File  string // the configuration
	State string // directory of what survives a reboot
	Force bool   // apply the configuration even if too many servers go
	Log   *slog.Logger
	Ready func() // called once the configuration is applied and the socket listens
}

// Daemon is a running daemon.
type Daemon struct {
	Options
	dir     string
	vrrpDir string // of imbang vrrp, for metrics
	started time.Time
	events  *events.Log
	runner  *check.Runner[core.CheckID]
	dialer  steer.Dialer
	hooks   *hooks.Queue
	calls   chan func()
	results chan result
	ended   chan struct{}
	heard   chan struct{} // something of the peer is new

	checking sync.Mutex // of a candidate: one after the other

	// The loop's own.
	core     *core.Core
	applied  plan.Table                 // as the configuration had it
	asserted plan.Table                 // what the daemon has made of it since
	pending  bool                       // the configuration is not carried out whole yet
	behind   map[model.ServiceKey]bool  // services whose last changes failed
	deleted  map[operator.ServerID]bool // servers that others deleted since
	// missing is what others deleted, and when the loop first saw that: servers, and, without an address of
	// a server, services that have none.
	missing map[operator.ServerID]time.Time
	due     map[operator.ServiceID]bool // services whose first quorum_up has not run
	added   map[config.Address]bool     // virtual addresses that the daemon added
	// surplus: servers are kept that the configuration does not name, as they were too many to delete at the
	// start; applied names them.
	surplus  bool
	retried  time.Time // the last time that failed changes were tried
	table    table
	seen     uint64 // the table's generation
	unsaved  bool   // what checks found since the record was written
	alarms   map[string]api.Alarm
	unmade   lack
	steered  int                // checks
	steering *director.Director // whose; nil: none's
	drift    []string
	reloaded time.Time
	failure  error // of the last reload
	// The file is being checked for a reload, and is to be once more afterwards.
	reloads, reloadsAgain bool
	checkers              map[*config.Check]check.Checker
	scraped               scraped
	sync                  keep.Keeper      // connection synchronization by Linux's protocol
	own                   keep.Replication // by imbang's own
	ledger                *operator.Ledger // what was ordered, of which core.Book is a part
	pair                  linked           // to the other director
	failover              *failover        // what imbang vrrp is told
	layer7                layer7
	peers                 peers // directors that are servers of each other
	auditing              bool
	audited               time.Time // the last time; zero: the start
	// The configuration's files as they were read last, as they were seen last, and since
	// when they are so.
	read, latest *config.Seen
	unsettled    time.Time
	// taken are the virtual addresses that another machine has.
	taken map[config.Address]taken
	// configured are the virtual addresses that were there since the daemon began.
	configured map[config.Address]bool
}

type result struct {
	id core.CheckID
	check.Result
	at time.Time
}

// polled is how often the loop looks whether others have changed something.
const polled = time.Second

// Run keeps the director of the calling thread's network namespace alive until the
// context ends. The director and its table stay.
func Run(ctx context.Context, o Options) (err error) {
	d := &Daemon{
		Options: o, started: time.Now(), calls: make(chan func()), results: make(chan result, 1024), ended: make(chan struct{}), heard: make(chan struct{}, 1),
		audited: time.Now(), alarms: map[string]api.Alarm{}, configured: map[config.Address]bool{}, taken: map[config.Address]taken{},
		behind: map[model.ServiceKey]bool{}, added: map[config.Address]bool{},
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // most of the time it waits: memory is worth more than CPU time
	}
	c, seen, err := config.LoadSeen(o.File)
	if err != nil {
		return err
	}
	d.read = seen
	if d.dir, err = place.Dir(); err != nil {
		return err
	}
	if d.vrrpDir, err = place.VRRPDir(); err != nil {
		return err
	}
	if d.layer7.dir, err = place.ProxyDir(); err != nil {
		return err
	}
	lock, err := place.Take(d.dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	place.Sweep()
	if d.ledger, err = operator.Load(d.bookFile()); err != nil {
		return err
	}
	if err := d.recallNode(); err != nil {
		return err
	}
	if d.events, err = events.Open(filepath.Join(o.State, "events.jsonl")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.events.Close()) }()
	d.hooks = hooks.New(d.hookFailed)
	defer d.endHooks()
	defer d.table.close()
	defer d.closeLayer7()
	defer d.peers.close()
	if err := d.begin(c, d.ledger.Book()); err != nil {
		return err
	}
	d.runner = check.NewRunner(d.report)
	defer d.runner.Stop()
	defer d.endCandidates()
	defer close(d.ended) // first: checks under way report no more
	d.endSteering()      // of a daemon that was killed
	defer d.endSteering()
	d.setJobs()
	d.setLayer7(time.Now())
	d.sync, d.own = keep.Keeper{Dir: d.dir, Log: o.Log}, keep.Replication{Dir: d.dir, Log: o.Log}
	d.setSynchronization()
	d.setPair()
	defer d.closePair()
	defer d.sync.Close()
	defer d.own.Close()
	if err := d.beginFailover(ctx); err != nil {
		return err
	}
	d.serveMetrics()
	defer d.closeMetrics()
	socket, err := api.Listen(place.Socket(d.dir), d, o.Log)
	if err != nil {
		return err
	}
	defer socket.Close()
	d.publish(time.Now())
	changes, err := host.Changes(ctx)
	if err != nil {
		return err
	}
	d.note(events.Event{Kind: events.Started, Text: fmt.Sprintf("process %d, configuration %s", os.Getpid(), o.File)})
	if o.Ready != nil {
		o.Ready()
	}
	d.provideMemory(ctx)
	d.loop(ctx, changes)
	goes := "the director goes on"
	if d.table.none {
		goes = "HAProxy goes on"
	}
	d.note(events.Event{Kind: events.Stopping, Text: goes + " without the daemon"})
	return d.remember()
}

func (d *Daemon) bookFile() string { return filepath.Join(d.State, "operator.json") }

// loop handles one thing after the other.
func (d *Daemon) loop(ctx context.Context, changes <-chan struct{}) {
	tick := time.NewTicker(polled)
	defer tick.Stop()
	hup, stop := hangups()
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-d.results:
			d.take(r)
		case call := <-d.calls:
			call()
		case <-hup:
			d.reloadLater("SIGHUP")
		case <-changes:
			d.keepHost()
		case <-d.heard:
			d.followPeer(time.Now())
		case <-tick.C:
			d.keepHost()
			d.serveMetrics() // again, if it failed
			d.keepSynchronization()
			d.catchUp()
			d.look()
			d.keepPair(time.Now()) // which counts what is in the table
			d.keepFailover()
			d.keepLayer7(time.Now())
			d.keepPeers()
			d.keepSteering()
			d.keepUnmade(time.Now())
			d.runDue(time.Now())
			d.save()
			d.audit(ctx)
			d.watchFiles(time.Now())
			alive()
		}
	}
}

// report hands a check's result to the loop.
func (d *Daemon) report(id core.CheckID, r check.Result, at time.Time) {
	select {
	case d.results <- result{id, r, at}:
	case <-d.ended:
	}
}

// errEnding says that the daemon takes no more requests.
var errEnding = errors.New("the daemon is stopping")

// do runs a function in the loop.
func (d *Daemon) do(f func() error) error {
	done := make(chan error, 1)
	select {
	case d.calls <- func() { done <- f() }:
		return <-done
	case <-d.ended:
		return errEnding
	}
}

// take takes a result in, and those that wait behind it.
func (d *Daemon) take(r result) {
	var out core.Outcome
	for range cap(d.results) {
		d.noteUnmade(r)
		one := d.core.Result(r.id, r.Result, r.at)
		out.Events = append(out.Events, one.Events...)
		out.Hooks = append(out.Hooks, one.Hooks...)
		out.Changed = append(out.Changed, one.Changed...)
		select {
		case r = <-d.results:
			continue
		default:
		}
		break
	}
	d.carryOut(out)
}

// carryOut does what follows from an input: first the table, then the word of it.
func (d *Daemon) carryOut(out core.Outcome) {
	d.follow(out.Changed)
	// The table does not always show whether a service has its quorum.
	if slices.ContainsFunc(out.Events, func(e events.Event) bool { return e.Kind == events.QuorumUp || e.Kind == events.QuorumDown }) {
		d.save()
	}
	d.tell(out)
}

// tell notes events and runs hooks.
func (d *Daemon) tell(out core.Outcome) {
	for _, e := range out.Events {
		d.note(e)
	}
	for _, h := range out.Hooks {
		d.hooks.Add(h.Command, h.Event)
	}
}

// alarmEvents is raised while events cannot be written to their file.
const alarmEvents = "events"

// note keeps an event, logs it, and sends mail of it.
func (d *Daemon) note(e events.Event) {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	e, err := d.events.Add(e)
	if err != nil {
		d.raise(alarmEvents, err.Error())
	} else {
		d.clear(alarmEvents)
	}
	level := slog.LevelInfo
	switch e.Kind {
	case events.ServerDown, events.QuorumDown, events.AlarmRaised, events.ReloadFailed, events.HookFailed, events.DriftFound, events.ProxyRestarted:
		level = slog.LevelWarn
	}
	args := []any{"event", string(e.Kind)}
	for _, f := range []struct{ key, value string }{{"service", e.Service}, {"server", e.Server}, {"by", e.By}} {
		if f.value != "" {
			args = append(args, f.key, f.value)
		}
	}
	d.Log.Log(context.Background(), level, e.Text, args...)
	if d.core != nil {
		d.hooks.Mail(d.core.Config.Daemon.Mail, d.core.Config.Daemon.MailTo, e)
	}
}

// hookFailed is called by other goroutines.
func (d *Daemon) hookFailed(e events.Event) {
	select {
	case <-d.ended:
		d.Log.Warn(e.Text, "event", string(e.Kind))
	default:
		go func() { _ = d.do(func() error { d.note(e); return nil }) }()
	}
}

// stopPatience is how long commands have at the end that run or wait.
const stopPatience = 10 * time.Second

// endHooks waits for commands because of events: the last one for a server, and for the quorum of a service,
// is about the state that the next daemon begins with, which runs none because of it but those in Daemon.due.
func (d *Daemon) endHooks() {
	if !d.hooks.Wait(stopPatience) {
		d.Log.Warn("commands because of events have not ended and are killed", "after", stopPatience)
	}
	d.hooks.Close()
}

// raise raises an alarm, unless it is raised with this text already.
func (d *Daemon) raise(name, text string) {
	old, known := d.alarms[name]
	if known && old.Text == text {
		return
	}
	d.alarms[name] = api.Alarm{Name: name, Since: time.Now(), Text: text}
	if name != alarmEvents { // that could not be kept
		d.note(events.Event{Kind: events.AlarmRaised, Text: name + ": " + strings.ReplaceAll(text, "\n", "; ")})
	}
}

// clear ends an alarm.
func (d *Daemon) clear(name string) {
	if a, raised := d.alarms[name]; raised {
		delete(d.alarms, name)
		d.note(events.Event{Kind: events.AlarmEnded, Text: name + ": after " + time.Since(a.Since).Round(time.Second).String()})
	}
}
