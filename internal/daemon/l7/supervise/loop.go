// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/daemon/l7/accesslog"
	"imbang/internal/daemon/l7/haproxy/runtime"
	"imbang/internal/daemon/place"
	"imbang/internal/jsonfile"
)

// Options of Run.
type Options struct {
	Dir     string // see package place
	Program string // HAProxy; "": haproxy in PATH
	Config  string // file, for Status
	// Render writes a configuration and publishes it, if there is none.
	Render func(context.Context) error
	Log    *slog.Logger
	// Ready is called once, when HAProxy accepts commands.
	Ready func()
	// Grace is how long connections may go on after a stop; 0: 30 s.
	Grace time.Duration
	// Fallback is how long servers are not checked by HAProxy if there is no daemon at the
	// start; 0: for ever. A daemon says by Renew how long it is to be waited for.
	Fallback time.Duration
	// Reload and Replace are signals: read the configuration again, and execute the program
	// again.
	Reload, Replace <-chan os.Signal
	// Execute executes the program again; it returns only if that fails.
	Execute func() error
}

// Times.
const (
	defaultGrace = 30 * time.Second
	reloadTime   = 30 * time.Second
	// copyTime is how often HAProxy's messages are copied.
	copyTime = time.Second
	// Once it is known that HAProxy has ended, whose workers end with it.
	askReady = 10 * time.Millisecond
)

// loop is the supervisor. One goroutine has all of it; what takes time reports by channels.
type loop struct {
	Options
	machine
	links
	messages
	holder
	lock    *os.File
	master  runtime.Master
	process *process
	found   bool
	status  Status
	calls   chan call
	control net.Listener

	// Of the process, and of the reload that is under way.
	readies  chan runtime.Processes
	reloads  chan reloadOutcome
	cancel   context.CancelFunc
	said     string        // messages since the try began
	asked    bool          // the next try is because of a request
	waiting  []call        // for the try that comes next
	trying   []call        // for the one that is under way
	settling []call        // for no try to be under way
	stopped  bool          // HAProxy was ended, by another process
	refusing bool          // HAProxy itself did not accept what is tried; otherwise something else failed
	lost     bool          // and it ran before, and has ended
	kills    bool          // or is, by this one
	replaces bool          // the program is to be executed again
	begun    time.Duration // see sinceBoot
	sockets  chan fetched
	fetches  int           // questions for sockets
	gone     time.Time     // HAProxy, last
	over     chan struct{} // closed at the end
	// endAccess ends the writer of access logs.
	endAccess func()
}

type reloadOutcome struct {
	runtime.Processes
	err error
}

// Run runs HAProxy until the context ends, and then ends it.
func Run(ctx context.Context, o Options) error {
	o.Program, o.Grace = cmp.Or(o.Program, "haproxy"), cmp.Or(o.Grace, defaultGrace)
	lock, err := place.TakeProxy(o.Dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if target(o.Dir, wanted) == "" && o.Render != nil {
		if err := o.Render(ctx); err != nil {
			return err
		}
	}
	if target(o.Dir, wanted) == "" && target(o.Dir, running) == "" {
		return errors.New("there is no configuration of HAProxy")
	}
	l := &loop{
		Options: o, machine: machine{grace: o.Grace}, links: links{dir: o.Dir}, messages: messages{path: LogFile(o.Dir), log: o.Log}, lock: lock,
		master: runtime.Master{Client: runtime.Client{Path: MasterSocket(o.Dir)}},
		status: Status{Supervisor: os.Getpid(), Config: o.Config, Since: time.Now()},
		calls:  make(chan call), readies: make(chan runtime.Processes), reloads: make(chan reloadOutcome),
		holder: holder{path: SocketsSocket(o.Dir), log: o.Log}, sockets: make(chan fetched), over: make(chan struct{}),
	}
	done := l.over
	defer close(done)
	if l.control, err = listen(o.Dir, l.calls, done); err != nil {
		return err
	}
	defer l.control.Close()
	starts, err := l.holder.listen()
	if err != nil {
		return fmt.Errorf("listening sockets of HAProxy: %w", err)
	}
	defer starts.Close()
	defer l.hold(nil)
	access, err := accesslog.Open(AccessLog(o.Dir))
	if err != nil {
		return err
	}
	l.writeAccess(access)
	defer func() { l.endAccess() }()
	l.begun = sinceBoot()
	l.begin()
	return l.run(ctx)
}

// begin goes on with a HAProxy that runs, or starts one.
func (l *loop) begin() {
	masters := find(l.Dir)
	keep := 0
	if len(masters) > 1 {
		// The one that the sockets belong to, as far as that is known.
		keep = max(0, slices.Index(masters, l.listens()))
	}
	for i, pid := range masters {
		p, err := adopt(l.Dir, pid)
		switch {
		case err != nil: // it has ended
		case i == keep:
			l.process, l.found = p, true
		default:
			l.Log.Warn("a second HAProxy of this directory is ended", "process", pid)
			p.signal(unix.SIGTERM)
			go func() { <-p.ended; p.close() }()
		}
	}
	l.at = logged(l.Dir)
	if l.found {
		l.Log.Info("HAProxy runs already and goes on", "process", l.process.pid)
		l.awaitReady()
	} else {
		l.endOrphans()
	}
	l.do(l.start(time.Now(), l.found, l.unfinished()))
}

// listens is the process at the master's socket; 0: none replies.
func (l *loop) listens() int {
	p, err := l.master.Processes(context.Background())
	if err != nil {
		return 0
	}
	return p.Master
}

func (l *loop) run(ctx context.Context) error {
	stop := ctx.Done()
	ticks := time.NewTicker(copyTime)
	defer ticks.Stop()
	for l.phase != Ended {
		var next <-chan time.Time
		if !l.next.IsZero() {
			next = time.After(time.Until(l.next))
		}
		var ended chan ending
		if l.process != nil {
			ended = l.process.ended
		}
		select {
		case <-stop:
			stop = nil
			l.do(l.machine.stop(time.Now()))
		case <-l.Options.Reload:
			l.ask(call{Request: Request{DoReload}})
		case <-l.Replace:
			l.replaces = true
		case c := <-l.calls:
			l.ask(c)
		case p := <-l.readies:
			l.ready(p)
		case o := <-l.reloads:
			l.reloaded(o)
		case f := <-l.sockets:
			l.fetched(f)
		case e := <-ended:
			l.ended(e)
		case now := <-next:
			l.do(l.tick(now))
		case <-ticks.C:
			l.said += l.copy()
			if l.settled() {
				l.said = ""
			}
			l.fallBack()
			l.release()
		}
		if l.settled() {
			l.answer(l.settling, "")
			l.settling = nil
		}
		if l.replaces && l.settled() {
			l.replace()
		}
	}
	l.write()
	return nil
}

// writeAccess writes access logs until endAccess, which returns when all that was read is written.
func (l *loop) writeAccess(access *os.File) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	w := &accesslog.Writer{Names: filepath.Join(l.Dir, running, LogsFile), Log: l.Log}
	go func() { w.Run(ctx, access); close(ended) }()
	l.endAccess = func() { stop(); <-ended }
}

// fallBack has HAProxy check servers itself once the daemon has not been there for long.
func (l *loop) fallBack() {
	if l.phase != Running || !expired(l.Dir, sinceBoot(), l.begun, l.Options.Fallback) {
		return
	}
	switch published, err := PublishFallback(l.Dir); {
	case err != nil:
		l.Log.Error("HAProxy's own checks are not turned on", "error", err)
	case published:
		l.Log.Warn("imbang run has not been there for long: HAProxy checks servers itself")
		l.ask(call{Request: Request{DoReload}})
	}
}

// ask carries a request out, or has it carried out.
func (l *loop) ask(c call) {
	switch c.Do {
	case DoReload:
		if l.phase == Stopping {
			l.answer([]call{c}, "imbang proxy: HAProxy is being stopped")
			return
		}
		l.asked = true
		l.waiting = append(l.waiting, c)
		l.do(l.machine.ask(time.Now()))
	case DoStatus:
		l.answer([]call{c}, "")
	case DoSettle:
		l.settling = append(l.settling, c)
	default:
		l.answer([]call{c}, fmt.Sprintf("imbang proxy: invalid request %q", c.Do))
	}
}

func (l *loop) answer(calls []call, err string) { l.reply(calls, Response{Error: err}) }

func (l *loop) reply(calls []call, r Response) {
	r.Status = l.status
	for _, c := range calls {
		if c.response != nil { // a signal has none
			c.response <- r
		}
	}
}

// do carries actions out.
func (l *loop) do(actions []Action) {
	for _, a := range actions {
		switch a {
		case Launch:
			l.launch()
		case Reload:
			l.reload()
		case Accept:
			l.outcome(Response{})
		case Refuse:
			l.refuseTry()
		case Finish:
			l.hold(nil)
			l.stopping(unix.SIGUSR1)
		case Quit:
			l.Log.Warn("connections did not end in time and are ended", "time", l.Grace)
			l.stopping(unix.SIGTERM)
		case Kill:
			l.Log.Error("HAProxy does not reply and is killed")
			l.stopping(unix.SIGKILL)
			l.kills = true
		case End:
			l.answer(slices.Concat(l.waiting, l.trying, l.settling), "imbang proxy: HAProxy was stopped")
		}
	}
	l.status.Phase = l.phase
	l.write()
}

func (l *loop) stopping(s unix.Signal) {
	if l.process != nil {
		l.process.signal(s)
	}
}

// try sets the configuration.
func (l *loop) try() error {
	asked := l.asked
	l.asked, l.said = false, ""
	l.trying, l.waiting = append(l.trying, l.waiting...), nil
	l.copy()
	err := l.links.try(asked)
	l.status.Configuration = target(l.Dir, running)
	return err
}

func (l *loop) launch() {
	err := l.try()
	if err == nil {
		l.process, err = launch(l.Program, l.Dir, l.holds())
	}
	if err != nil {
		l.status.LastEnd, l.stopped, l.refusing, l.lost = err.Error(), false, false, false
		l.do(l.machine.ended(time.Now()))
		return
	}
	l.status.Starts++
	l.status.HAProxy, l.status.Started = l.process.pid, time.Now()
	l.Log.Info("HAProxy is started", "process", l.process.pid, "configuration", l.status.Configuration)
	l.awaitReady()
}

// awaitReady reports when a worker of the process accepts commands.
func (l *loop) awaitReady() {
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	pid, master, to := l.process.pid, l.master, l.readies
	go func() {
		for ctx.Err() == nil {
			if p, err := master.Ready(ctx, pid); err == nil {
				select {
				case to <- p:
				case <-ctx.Done():
				}
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(askReady):
			}
		}
	}()
}

func (l *loop) ready(p runtime.Processes) {
	if l.process == nil || p.Master != l.process.pid {
		return
	}
	l.know(p)
	if p.Stopping {
		// A supervisor was killed during a stop. That had no more to wait for than the grace, and this one
		// is there to have connections accepted.
		l.Log.Warn("HAProxy was being stopped, and is ended and started again", "process", p.Master)
		l.stopping(unix.SIGTERM) // ended follows
		return
	}
	l.stopped = false
	l.fetch()
	l.do(l.machine.ready(time.Now()))
	if l.Options.Ready != nil {
		l.Options.Ready()
		l.Options.Ready = nil
	}
}

// know keeps what the master says.
func (l *loop) know(p runtime.Processes) {
	l.status.HAProxy, l.status.Version, l.status.Workers, l.status.Old = p.Master, p.Version, p.Workers, p.Old
	l.status.Configuration = target(l.Dir, running)
}

func (l *loop) reload() {
	if err := l.try(); err != nil {
		l.status.Reason, l.refusing, l.lost = err.Error(), false, false
		l.do(l.machine.reloaded(time.Now(), false))
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), reloadTime)
	l.cancel = cancel
	master, to := l.master, l.reloads
	go func() {
		p, err := master.Reload(ctx)
		if !errors.Is(ctx.Err(), context.Canceled) { // HAProxy has not ended
			to <- reloadOutcome{p, err}
		}
		cancel()
	}()
}

func (l *loop) reloaded(o reloadOutcome) {
	if l.phase != Reloading {
		return
	}
	if errors.Is(o.err, runtime.ErrNotRunning) {
		return // ended follows, with the reason
	}
	l.status.Reason, l.lost = "", false
	if o.err != nil {
		l.status.Reason, l.refusing = o.err.Error(), errors.Is(o.err, runtime.ErrReload)
	}
	if o.Master != 0 {
		l.know(o.Processes)
	}
	if o.err == nil {
		l.status.Reloads++
		l.fetch()
	}
	l.do(l.machine.reloaded(time.Now(), o.err == nil))
}

// outcome of a try is that it was accepted, or why not.
func (l *loop) outcome(r Response) {
	trying := l.trying
	l.trying = nil
	if r.Error == "" {
		if err := l.accept(); err != nil {
			l.Log.Error(err.Error())
		}
		l.status.Refused, l.status.Reason = "", ""
		if l.phase == Running && l.status.Starts+l.status.Reloads > 0 {
			l.Log.Info("HAProxy has accepted the configuration", "configuration", l.status.Configuration, "workers", l.status.Workers)
		}
	}
	l.status.Phase = l.phase
	l.reply(trying, r)
}

// refuseTry goes back to the configuration before, and says why.
func (l *loop) refuseTry() {
	l.said += l.copy()
	why := cmp.Or(runtime.Reason(l.said), l.status.Reason, l.status.LastEnd)
	if l.stopped {
		// The configuration is not the cause: the next start tries it again.
		l.outcome(Response{Error: "imbang proxy: " + cmp.Or(l.status.LastEnd, "HAProxy has ended")})
		return
	}
	tried := target(l.Dir, running)
	before, err := l.refuse()
	if err != nil {
		l.Log.Error(err.Error())
	}
	l.status.Refused, l.status.Reason, l.status.Configuration = tried, why, target(l.Dir, running)
	if l.phase == Running {
		l.status.Failed++
	}
	message := "HAProxy does not accept the configuration"
	if !l.refusing {
		message = "HAProxy has not loaded the configuration"
	}
	if before {
		message += ", and goes on with the one before"
	}
	l.Log.Error(message, "configuration", tried, "reason", why)
	l.outcome(Response{Error: message + ": " + why, Refused: l.refusing, Ended: l.lost})
}

func (l *loop) ended(e ending) {
	if l.cancel != nil {
		l.cancel()
	}
	l.process.close()
	l.process = nil
	l.endOrphans()
	if l.phase == Running || l.phase == Reloading {
		l.gone = time.Now()
	}
	l.status.HAProxy, l.status.Workers, l.status.Old = 0, nil, nil
	said := l.copy() // of a stop, too: the next supervisor would log it as its own
	if l.phase != Stopping {
		l.said += said
		l.refusing, l.lost = !e.stopped, l.phase == Reloading
		l.stopped, l.kills = e.stopped && !l.kills, false
		l.status.LastEnd = "HAProxy has " + e.why
		if why := runtime.Reason(l.said); why != "" {
			l.status.LastEnd += ": " + why
		}
		l.Log.Error("HAProxy has "+e.why+" and is started again", "messages", runtime.Reason(l.said))
	}
	l.do(l.machine.ended(time.Now()))
}

func (l *loop) endOrphans() {
	if orphans := endOrphans(l.Dir); len(orphans) > 0 {
		l.Log.Warn("workers of a HAProxy whose master has ended are killed", "workers", orphans)
	}
}

// write keeps the status in its file.
func (l *loop) write() {
	l.status.Logged = l.at
	if err := jsonfile.Write(StateFile(l.Dir), l.status); err != nil {
		l.Log.Error("the status is not written", "error", err)
	}
}

// replace executes the program again. HAProxy stays its child, and the lock with it.
func (l *loop) replace() {
	l.replaces = false
	l.copy()
	l.write()
	fd := int(l.lock.Fd())
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0)
	if err == nil {
		l.endAccess()
		err = l.Execute()
		if access, err := accesslog.Open(AccessLog(l.Dir)); err == nil {
			l.writeAccess(access)
		}
	}
	unix.CloseOnExec(fd)
	l.Log.Error("the program cannot be executed again, and this one goes on", "error", err)
}
