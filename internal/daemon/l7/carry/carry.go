// SPDX-License-Identifier: Apache-2.0

// Package carry has HAProxy do what the daemon wants of layer 7.
//
// A Keeper has a goroutine of its own, which carries out the latest that is wanted: what takes
// HAProxy long keeps neither the daemon's loop nor the kernel's table waiting. Each step
//
//  1. copies certificates, authorities and pages that are whole (certificates.go): a file that is damaged
//     keeps the last good one in use;
//  2. renders the configuration with the states of all servers, and publishes it (package
//     supervise), so that whatever starts or reloads HAProxy from then on has them;
//  3. sends HAProxy the commands that lead there, or has it reload where there are none (package
//     runtime). A configuration that is not loaded yet is checked by HAProxy before it is
//     published.
//
// A step may take HAProxy seconds: it checks a configuration, and reads all of it. What is to get no
// requests any more is taken out of use meanwhile, see hurry.go.
//
// If HAProxy refuses a configuration all the same, it goes on with the one before, and that one is
// published again with the states of now (attempts.go). Whatever keeps a step from having HAProxy
// follow, the states of servers are sent by commands alone (tell.go): nobody else checks servers while
// the daemon is there.
package carry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/haproxy"
	"imbang/internal/daemon/l7/haproxy/runtime"
	"imbang/internal/daemon/l7/supervise"
)

// Wanted is what HAProxy is to do. It is not changed once it was set.
type Wanted struct {
	Config   *l7.Config
	States   l7.States
	Draining bool // the whole node
}

// Options of a Keeper.
type Options struct {
	Dir     string // of package place
	Program string // "": haproxy of PATH
	State   string // directory of what survives a reboot; "": nothing does
	Log     *slog.Logger
}

// Status is what a Keeper has come to.
type Status struct {
	Version string // of the program; "": not known yet
	// Problem says why HAProxy does not do what is wanted; "": it does, or nothing is.
	Problem string
	// Certificates are problems of files, by name: HAProxy goes on with what they had before.
	Certificates map[string]string
	Expiries     map[string]time.Time // of the certificates that are in use, by file
	Reloads      int                  // by this Keeper
	Why          []string             // of the last one
	// Restarts of HAProxy that this Keeper has seen, and how the process of before has ended, as far
	// as its supervisor knows.
	Restarts int
	LastEnd  string
}

// Keeper carries out.
type Keeper struct {
	Options
	cancel context.CancelFunc
	ended  chan struct{}
	wake   chan struct{}

	mu     sync.Mutex
	wanted *Wanted
	number uint64 // of wanted
	done   uint64 // that was carried out last, or failed
	err    error  // of that
	status Status
	waits  []chan struct{}
	// detected is version, for Preview.
	detected haproxy.Version

	// The goroutine's own.
	version      haproxy.Version
	program      os.FileInfo // that the version is of
	certificates certificates
	loaded       *loaded // nil: not known
	refused      map[attempt]*notAccepted
	former       former
	master       int                  // HAProxy's process; 0: not known yet
	unsure       bool                 // HAProxy has commands that led to a configuration that it did not accept
	told         l7.States            // by commands alone, since HAProxy followed last
	failed       time.Time            // since when HAProxy waits to be started; zero: it does not
	deletes      []runtime.Command    // of servers that still have connections
	hurried      map[l7.ServerID]bool // servers that were changed during steps
}

// loaded is what HAProxy has.
type loaded struct {
	runtime.Side
	draining bool
}

// Times.
const (
	pace      = time.Second      // between two tries, and two looks at certificates
	askTime   = 2 * time.Second  // for a reply of the supervisor that says what it does
	stepTime  = 45 * time.Second // for all of a step
	checkTime = 30 * time.Second // for haproxy -c
)

// New begins.
func New(o Options) *Keeper {
	if o.Program == "" {
		o.Program = "haproxy"
	}
	ctx, cancel := context.WithCancel(context.Background())
	k := &Keeper{Options: o, cancel: cancel, ended: make(chan struct{}), wake: make(chan struct{}, 1), certificates: newCertificates(o.Dir)}
	supervise.SweepChecks(o.Dir, time.Now())
	if o.State != "" {
		k.certificates.saved, k.certificates.saves = Saved(o.State), true
	}
	go k.run(ctx)
	return k
}

// Close ends the goroutine. HAProxy goes on.
func (k *Keeper) Close() {
	k.cancel()
	<-k.ended
}

// Set says what is wanted from now on, and returns a number for Wait.
func (k *Keeper) Set(w *Wanted) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wanted = w
	k.number++
	select {
	case k.wake <- struct{}{}:
	default:
	}
	return k.number
}

// Wait waits until what was wanted under a number, or later, was tried, and says whether HAProxy
// does it. The error is a *Former if HAProxy does all of it but with the configuration before.
func (k *Keeper) Wait(ctx context.Context, number uint64) error {
	for {
		k.mu.Lock()
		if k.done >= number {
			defer k.mu.Unlock()
			return k.err
		}
		c := make(chan struct{})
		k.waits = append(k.waits, c)
		k.mu.Unlock()
		select {
		case <-c:
		case <-k.ended:
			return errors.New("the daemon is stopping")
		case <-ctx.Done():
			return fmt.Errorf("HAProxy has not followed yet: %w", ctx.Err())
		}
	}
}

// Status is that of the last step.
func (k *Keeper) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.status
}

// Preview is what a change of configuration takes: how many commands, and why a reload, if one is
// needed.
func (k *Keeper) Preview(from *Wanted, to *l7.Config) (commands int, reload []string) {
	k.mu.Lock()
	v := k.detected
	k.mu.Unlock()
	p := runtime.Changes(runtime.Side{Config: from.Config, States: from.States}, runtime.Side{Config: to, States: from.States}, v, haproxy.Arguments(v))
	return len(p.Commands), p.Reload
}

func (k *Keeper) run(ctx context.Context) {
	defer close(k.ended)
	tick := time.NewTicker(pace)
	defer tick.Stop()
	done := uint64(0) // without a problem
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		case <-tick.C:
		}
		k.mu.Lock()
		w, number := k.wanted, k.number
		k.mu.Unlock()
		if w == nil {
			continue
		}
		// What stops any of it, such as a file system that does not reply, stops no verdict.
		err := k.during(ctx, w, number, func() error {
			changed, err := k.certificates.look(k.configurations(w)...), error(nil)
			if changed {
				clear(k.refused) // it may have been a file
			}
			due := number != done || k.Status().Problem != ""
			if k.strayed(ctx, due) {
				k.loaded, changed = nil, true
			}
			if due || changed {
				if err = k.step(ctx, w); err == nil {
					done = number
				}
			}
			k.delete(ctx)
			if err == nil || errors.Is(err, runtime.ErrNotRunning) {
				if why := k.failing(ctx); why != nil {
					err = why // it says more
				}
			}
			return err
		})
		k.report(number, err)
	}
}

// strayed reports whether HAProxy does not do any more what it did: it has ended, or was started
// again, or its supervisor has loaded the configuration for the time without a daemon. Whether it runs
// is not asked if a step is due: that finds out.
func (k *Keeper) strayed(ctx context.Context, due bool) bool {
	at := supervise.Published(k.Dir)
	if at == "" || filepath.Base(at) == supervise.Fallback {
		return true
	}
	s, err := k.ask(ctx)
	switch {
	case err != nil:
	case s.Phase == supervise.Waiting || s.Phase == supervise.Starting:
		if k.master == 0 {
			k.master = notStarted
		}
		return false // once it runs, it is another process
	case k.restarted(s):
		return true
	}
	if due {
		return false
	}
	c, err := net.DialTimeout("unix", supervise.RuntimeSocket(k.Dir), askTime)
	if err != nil {
		return true
	}
	c.Close()
	return false
}

// notStarted is no process.
const notStarted = -1

// restarted reports whether HAProxy is another process than before. It may have been started with
// states of before: the supervisor goes back to what was loaded last when a start fails.
func (k *Keeper) restarted(s supervise.Status) bool {
	if s.HAProxy == 0 {
		return false
	}
	before := k.master
	k.master = s.HAProxy
	if before == 0 || before == s.HAProxy {
		return false
	}
	if before != notStarted {
		k.mu.Lock()
		k.status.Restarts, k.status.LastEnd = k.status.Restarts+1, s.LastEnd
		k.mu.Unlock()
	}
	return true
}

// ask asks the supervisor what it does.
func (k *Keeper) ask(ctx context.Context) (supervise.Status, error) {
	asking, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	s, err := supervise.Ask(asking, k.Dir, supervise.DoStatus)
	if err != nil && asking.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w after %v (systemctl status imbang-proxy)", errSilent, askTime)
	}
	return s, err
}

var errSilent = errors.New("imbang proxy does not reply")

// failing says why HAProxy, which was told what to do, does not do it: it is started again and again.
// One that has ended once is back within a second.
func (k *Keeper) failing(ctx context.Context) error {
	s, err := k.ask(ctx)
	if errors.Is(err, errSilent) {
		return err
	}
	if err != nil || s.Phase == supervise.Running || s.Phase == supervise.Reloading {
		k.failed = time.Time{}
		return nil // what is wrong with its supervisor is said by the next step
	}
	if k.failed.IsZero() {
		k.failed = time.Now()
	}
	if time.Since(k.failed) < pace {
		return nil
	}
	return fmt.Errorf("HAProxy does not run, and is started again and again: %s", strings.ReplaceAll(strings.TrimSpace(s.LastEnd), "\n", "; "))
}

// detect asks the program for its version, again when its file is another one.
func (k *Keeper) detect(ctx context.Context) error {
	path, err := exec.LookPath(k.Program)
	if err != nil {
		return fmt.Errorf("HAProxy: %w: install the package haproxy", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("HAProxy: %w", err)
	}
	if k.program != nil && os.SameFile(k.program, info) && k.program.ModTime().Equal(info.ModTime()) {
		return nil
	}
	if k.version, err = haproxy.Detect(ctx, path); err == nil {
		k.program = info
	}
	return err
}

// carry publishes, and has HAProxy follow.
func (k *Keeper) carry(ctx context.Context, w *Wanted) error {
	config, err := k.certificates.use(w.Config)
	if err != nil {
		return incomplete(err)
	}
	files, err := k.render(config, w)
	if err != nil {
		return incomplete(err)
	}
	plan, published := k.plan(config, files, w)
	if len(plan.Reload) > 0 && !published {
		checking, cancel := context.WithTimeout(ctx, checkTime)
		defer cancel()
		if _, err := haproxy.Check(checking, k.Program, config, w.States, k.options(w.Draining)); err != nil {
			if errors.As(err, new(*haproxy.Refusal)) {
				return refusal(k.certificates.originals(err), time.Now().Add(refusedTime))
			}
			return err // it is tried again
		}
		// The supervisor may have published meanwhile, as it was started without a configuration. And
		// what is published has the verdicts of now.
		w = k.latest(w)
		if files, err = k.render(config, w); err != nil {
			return err
		}
		plan, published = k.plan(config, files, w)
	}
	if !published {
		if err := publish(k.Dir, files); err != nil {
			return err
		}
	}
	return k.follow(ctx, plan, w)
}

// plan is what leads to what is wanted, and whether its files are published already.
func (k *Keeper) plan(used *l7.Config, files []file, w *Wanted) (p runtime.Plan, published bool) {
	published = isPublished(k.Dir, files)
	to := runtime.Side{Config: w.Config, States: w.States}
	from := k.loaded
	if from == nil {
		from = k.recall()
	}
	switch {
	case from != nil:
		p = runtime.Changes(from.Side, to, k.version, k.arguments(used))
		p.Reload = append(p.Reload, k.certificates.unloaded(files, k.Dir)...)
		if k.loaded == nil || k.unsure {
			// The last daemon may have been killed before HAProxy had followed.
			p.Commands = append(append(p.Commands, states(w, nil)...), drainNode(w.Draining)...)
		} else if len(k.hurried) > 0 {
			p.Commands = append(p.Commands, states(w, k.hurried)...)
		}
		if from.draining != w.Draining {
			p.Commands = append(p.Commands, drainNode(w.Draining)...)
			if w.Draining {
				// Clients of HTTP/2 are told to go (GOAWAY) by a worker that ends, and only by that.
				p.Reload = append(p.Reload, "the node is drained")
			}
		}
	case published:
		p.Reload = []string{"what was published last is not loaded yet"}
	default:
		p.Reload = []string{"it is not what was published last"}
	}
	return p, published
}

// arguments are those of servers by the configuration that names the copies of files.
func (k *Keeper) arguments(used *l7.Config) func(*l7.Backend, *l7.Server) []string {
	of := haproxy.Arguments(k.version)
	return func(b *l7.Backend, s *l7.Server) []string {
		for i := range used.Backends {
			if used.Backends[i].Name == b.Name {
				return of(&used.Backends[i], s)
			}
		}
		return of(b, s)
	}
}

// configurations are those whose files are copied: what is wanted, and what HAProxy has and may go on
// with.
func (k *Keeper) configurations(w *Wanted) []*l7.Config {
	if k.loaded == nil || k.loaded.Config == w.Config {
		return []*l7.Config{w.Config}
	}
	return []*l7.Config{w.Config, k.loaded.Config}
}

// states are the commands that set the states of some servers; nil: of all.
func states(w *Wanted, of map[l7.ServerID]bool) (commands []runtime.Command) {
	for i := range w.Config.Backends {
		b := &w.Config.Backends[i]
		for j := range b.Servers {
			id := l7.ServerID{Backend: b.Name, Server: b.Servers[j].Name}
			if state, known := w.States[id]; known && (of == nil || of[id]) {
				commands = append(append(commands, runtime.SetWeight(id, state.Weight)), runtime.SetHealth(id, state.Health)...)
			}
		}
	}
	return commands
}

// drainNode has the node's monitors fail.
func drainNode(drains bool) []runtime.Command {
	h := l7.Up
	if drains {
		h = l7.Drain
	}
	return runtime.SetHealth(l7.ServerID{Backend: haproxy.NodeBackend, Server: haproxy.NodeServer}, h)
}

// follow has HAProxy follow what was published.
func (k *Keeper) follow(ctx context.Context, p runtime.Plan, w *Wanted) error {
	is := &loaded{runtime.Side{Config: w.Config, States: w.States}, w.Draining}
	var now []runtime.Command
	var deletes []runtime.Command
	for _, c := range p.Commands {
		if c.Later {
			deletes = append(deletes, c)
		} else {
			now = append(now, c)
		}
	}
	if len(now) > 0 {
		_, err := supervise.Verdicts(ctx, k.Dir, now...)
		switch {
		case errors.Is(err, runtime.ErrNotRunning):
			k.loaded, k.deletes = nil, nil // it starts with what was published
			return fmt.Errorf("HAProxy does not run: %w", supervise.ErrNone)
		case err != nil && len(p.Reload) == 0:
			// It is not what it was thought to be: the files are.
			p.Reload = []string{err.Error()}
		}
	}
	if len(p.Reload) == 0 {
		k.loaded, k.deletes = is, append(k.deletes, deletes...)
		k.unsure = false
		carried(k.Dir)
		return k.certificates.load(ctx, k.Dir)
	}
	k.mu.Lock()
	k.status.Reloads, k.status.Why = k.status.Reloads+1, p.Reload
	k.mu.Unlock()
	k.Log.Info("HAProxy reloads its configuration", "because", strings.Join(p.Reload, "; "))
	_, err := supervise.Ask(ctx, k.Dir, supervise.DoReload)
	switch {
	case errors.Is(err, supervise.ErrNone):
		k.loaded = nil // whenever it starts it is with what was published, but when is not known
		return err
	case err != nil:
		k.unsure = true
		var r *supervise.Refusal
		if !errors.As(err, &r) {
			k.loaded = nil // what it has is not known
			return err
		}
		if r.Ended {
			k.loaded = nil
			return refusal(err, time.Time{}) // to try it again would end connections again
		}
		return refusal(err, time.Now().Add(refusedTime)) // a port may have been taken
	}
	k.loaded, k.deletes, k.unsure = is, nil, false
	carried(k.Dir)
	k.certificates.reloaded()
	return nil
}

// delete deletes servers whose connections have ended by now.
func (k *Keeper) delete(ctx context.Context) {
	worker := &runtime.Client{Path: supervise.RuntimeSocket(k.Dir)}
	var busy []runtime.Command
	for i, c := range k.deletes {
		err := worker.Run(ctx, c)
		if err != nil && !errors.As(err, new(*runtime.Refused)) && !errors.Is(err, runtime.ErrNotRunning) {
			busy = append(busy, k.deletes[i:]...) // it does not reply now
			break
		}
		if runtime.IsBusy(err) {
			busy = append(busy, c)
		}
		// Another error: HAProxy was started again without it.
	}
	k.deletes = busy
}

// report notes the outcome of a step.
func (k *Keeper) report(number uint64, err error) {
	k.mu.Lock()
	k.done = number
	k.status.Version, k.detected = k.version.Text, k.version
	k.status.Certificates = k.certificates.problems()
	if k.wanted != nil {
		k.status.Expiries = k.certificates.expiries(k.wanted.Config)
	}
	k.status.Problem, k.err = "", err
	if err != nil {
		k.status.Problem = err.Error()
	}
	waits := k.waits
	k.waits = nil
	k.mu.Unlock()
	for _, c := range waits {
		close(c)
	}
}
