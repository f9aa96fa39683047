// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"slices"
	"time"

	"imbang/internal/daemon/events"
	"imbang/internal/daemon/hooks"
	"imbang/internal/daemon/place"
	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/host"
)

// Options are what a process is told.
type Options struct {
	// Load reads the configuration, at first and for each reload.
	Load func() (*setup.Setup, error)
	// File is its name, for the status.
	File string
	// Dir is the directory of the network namespace.
	Dir string
	Log *slog.Logger
	// Ready is called once, when all groups have started.
	Ready func()
	// Reload and Replace ask for a reload, and for a handover.
	Reload, Replace <-chan os.Signal
	// Execute replaces the program. It returns only if it fails, or in tests.
	Execute func() error
	// RealTime makes the loop's thread real-time if that is allowed.
	RealTime bool
	// OpenPlane opens the data plane of the director of the calling thread's network
	// namespace; nil without an error: none is loaded. It is called by another goroutine than
	// Run's. Without it no director is used.
	OpenPlane func() (Plane, error)
}

// ErrReplaced is the error of a process whose successor goes on, if Execute returned nil.
var ErrReplaced = errors.New("the process was replaced")

// stopPatience is how long notify commands have at the end, and the kernel. Tests change it.
var stopPatience = 10 * time.Second

// loop has all state; its methods are called by one goroutine.
type loop struct {
	Options
	ledger
	poll      *poller
	worker    *worker
	links     *host.Links // the worker's
	watch     *host.DeviceWatch
	announcer *host.Announcer
	hooks     *hooks.Queue
	tracker   *tracker
	lock      *os.File

	setup         *setup.Setup
	devices       map[string]*host.Device
	sockets       map[spot]*opened
	socketsAt     time.Duration // when failures are tried again; 0: never
	routes        map[route]target
	groups        []*group
	first         int                // of the groups that the next round begins with
	advertisement vrrp.Advertisement // that is being received
	message       []byte             // that is being sent

	// looking: the worker reads the devices; lookAgain: they have changed since.
	looking, lookAgain bool
	lookAt             time.Duration // when a failure is tried again; 0: never
	lookError          string

	began       time.Time
	loaded      time.Time
	loadError   string
	notRealTime string        // why
	late        time.Duration // of ticks, at most
	again       int           // rounds in a row that were too long for ticks
	started     bool
	stopping    bool
	replacing   *replacement

	controlled
	planeUse
	wants chan []neighbour // for surroundings
}

// Run runs until the context ends, and leaves then: other directors take over at once.
func Run(ctx context.Context, o Options) (err error) {
	log, flush := newBehind(o.Log)
	defer flush()
	o.Log = log
	// Sockets belong to the network namespace of the thread that opens them.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l := &loop{Options: o, ledger: ledger{known: map[vrrp.Address]bool{}}, sockets: map[spot]*opened{}, began: time.Now(), loaded: time.Now()}
	l.clients, l.macs, l.errs = map[*controlClient]bool{}, map[neighbour]net.HardwareAddr{}, map[planeError]string{}
	before, err := l.inherit()
	if err != nil {
		return err
	}
	defer l.lock.Close()
	wanted, restored := before.Setup, before.Setup != nil
	if wanted == nil {
		if wanted, err = o.Load(); err != nil {
			// An earlier process may have been killed.
			_ = os.Remove(place.VRRPHandover(o.Dir))
			return errors.Join(err, cleanUp(o.Log, o.OpenPlane))
		}
		before.Setup = wanted
	}
	if o.RealTime {
		end, err := realTime()
		defer end()
		if err != nil {
			l.notRealTime = oneLine(err)
			log.Warn("the process is not real-time: under load it may take itself for stalled", "error", l.notRealTime)
		}
	}
	defer l.close()
	if err := l.open(); err != nil {
		return l.abandon(&before, err)
	}
	served, err := l.serveStatus()
	if err != nil {
		return l.abandon(&before, err)
	}
	defer served()
	surrounded, err := l.surround(before.Groups != nil)
	if err != nil {
		return l.abandon(&before, err)
	}
	defer surrounded()
	if err := l.start(wanted, before); err != nil {
		return l.abandon(&before, err)
	}
	controlled, err := l.serveControl() // now, as clients learn of all groups first
	if err != nil {
		return l.abandon(&before, err)
	}
	defer controlled()
	ended := make(chan struct{})
	defer close(ended)
	go l.signals(ctx, ended, restored)
	if err = l.run(); err != nil && !errors.Is(err, ErrReplaced) {
		l.stop()
	}
	return err
}

func (l *loop) open() (err error) {
	if l.poll, err = newPoller(); err != nil {
		return err
	}
	if l.links, err = host.OpenLinks(); err != nil {
		return err
	}
	if l.worker, err = newWorker(l.RealTime); err != nil {
		return err
	}
	if l.watch, err = host.NewDeviceWatch(); err != nil {
		return err
	}
	if l.announcer, err = host.NewAnnouncer(); err != nil {
		return err
	}
	l.openHelpers()
	return l.poll.add(l.watch.FD())
}

// openHelpers begins what runs other programs.
func (l *loop) openHelpers() {
	l.hooks = hooks.New(func(e events.Event) { l.Log.Error("notify command failed", "group", e.Service, "error", e.Text) })
	l.tracker = newTracker(l.poll.post, l.scriptChanged)
}

// close ends what open began, as far as it came.
func (l *loop) close() {
	if l.tracker != nil {
		l.tracker.close()
	}
	if l.hooks != nil {
		l.hooks.Close()
	}
	if l.worker != nil && !l.worker.close(stopPatience) {
		l.Log.Warn("the kernel has not answered: another program holds its RTNL lock", "after", stopPatience)
		return // what the worker uses stays open until the process ends
	}
	for _, s := range l.sockets {
		if s.Socket != nil {
			s.Close()
		}
	}
	if l.announcer != nil {
		l.announcer.Close()
	}
	if l.watch != nil {
		l.watch.Close()
	}
	if l.links != nil {
		l.links.Close()
	}
	if l.poll != nil {
		l.poll.close()
	}
}

// signals passes what others ask for to the loop. A program that was executed again goes on
// with the earlier one's configuration, and reads the file now.
func (l *loop) signals(ctx context.Context, ended <-chan struct{}, reload bool) {
	loads := make(chan struct{}, 1)
	defer close(loads)
	go func() { // it reads files, and may take long
		load := func() {
			wanted, err := l.Load()
			l.poll.post(func() { l.reload(wanted, err) })
		}
		if reload {
			load()
		}
		if l.Ready != nil {
			l.poll.post(func() { go l.Ready() })
		}
		for range loads {
			load()
		}
	}()
	for {
		select {
		case <-ended:
			return
		case <-ctx.Done():
			l.poll.post(func() { l.stopping = true })
			return
		case <-l.Reload:
			select {
			case loads <- struct{}{}:
			default: // it is about to be read
			}
		case <-l.Replace:
			l.poll.post(l.beginReplacement)
		}
	}
}

// Bounds of a round. One that took longer than slack before ticks is followed by another one,
// as advertisements may have arrived meanwhile; but not more than some in a row.
const (
	slack     = 5 * time.Millisecond
	moreTimes = 3
)

// run is the loop.
func (l *loop) run() error {
	for {
		t := now()
		if l.watch.Drain() {
			l.look()
		}
		read := true
		for _, s := range l.sockets {
			read = l.receive(s) && read
		}
		for _, f := range l.poll.take() {
			f()
		}
		if l.stopping {
			l.stop()
			return nil
		}
		if l.replacing != nil {
			if err := l.replace(); err != nil {
				return err
			}
		}
		if !l.tick(t, read) {
			l.flush(now())
			continue
		}
		l.flush(t)
		if err := l.poll.wait(l.next(t)); err != nil {
			return err
		}
	}
}

// tick calls the machines that are due, and reports false if advertisements have to be read
// before the others are. A master that does not read everything advertises nevertheless.
func (l *loop) tick(t time.Duration, read bool) bool {
	l.checkReady(t)
	for i := range l.groups {
		g := l.groups[(l.first+i)%len(l.groups)]
		if due := g.next != 0 && t >= g.next; !due && (g.failedUntil == 0 || t < g.failedUntil) && (g.overdueAt() == 0 || t < g.overdueAt()) {
			continue
		}
		stale := now()-t > slack
		if (stale || !read && g.machine.State() != vrrp.Master) && l.again < moreTimes {
			l.again++
			l.first = (l.first + i) % len(l.groups)
			return false
		}
		at := t
		if stale {
			at = now()
		}
		g.tick(at)
	}
	l.again, l.first = 0, 0
	l.retry(t)
	return true
}

func (g *group) tick(t time.Duration) {
	if g.next != 0 && t >= g.next {
		g.late = max(g.loop.late, t-g.next)
		g.call(func(m *vrrp.Machine, out *vrrp.Output) { m.Tick(t, out) })
	}
	g.retry(t)
	g.checkOverdue(t)
}

// retry does again what failed.
func (l *loop) retry(t time.Duration) {
	l.sendResignations(t)
	if l.expires(t) == 0 {
		l.synchronize()
	}
	if l.lookAt != 0 && t >= l.lookAt {
		l.look()
	}
	if l.socketsAt != 0 && t >= l.socketsAt {
		l.openSockets()
		l.reviewAll(t)
	}
}

// next is when the next round is due, at the latest; 0: there is no such time.
func (l *loop) next(t time.Duration) (next time.Duration) {
	soonest := func(at time.Duration) {
		if at != 0 && (next == 0 || at < next) {
			next = at
		}
	}
	for _, g := range l.groups {
		soonest(g.next)
		soonest(g.failedUntil)
		soonest(g.overdueAt())
		soonest(g.resignAt)
	}
	soonest(l.lookAt)
	soonest(l.socketsAt)
	soonest(l.expires(t))
	if l.clean && !l.busy {
		soonest(max(l.cleanAfter, t))
	}
	if l.replacing != nil {
		soonest(t + replacementStep)
	}
	return next
}

// start starts the groups: where an earlier program handed over, as it was there.
func (l *loop) start(wanted *setup.Setup, before handover) (err error) {
	t := now()
	l.setup = wanted
	l.tracker.set(wanted.Scripts, before.Scripts)
	if l.devices = before.Devices; l.devices == nil {
		if l.devices, err = l.links.Devices(); err != nil {
			return err
		}
	}
	for i := range wanted.Groups {
		g := newGroup(l, &wanted.Groups[i])
		l.groups = append(l.groups, g)
		if snapshot, has := before.Groups[g.setup.Name]; has {
			if err := g.restore(t, snapshot, before.Memory[g.setup.Name]); err == nil {
				continue
			} else {
				l.Log.Error("what the earlier program handed over cannot be used: the group starts anew", "group", g.setup.Name, "error", err)
			}
		}
		if err := g.make(); err != nil {
			return err
		}
	}
	l.recall(&before)
	l.guard()
	l.adopt(before.Sockets)
	l.openSockets()
	l.clean = true
	if before.Groups == nil { // nothing is advertised yet
		l.noteStale()
		if !l.settle(startPatience) {
			return fmt.Errorf("%w within %s: another program holds its RTNL lock", errNoAnswer, startPatience)
		}
	}
	l.started = true
	for _, g := range l.groups {
		g.begin(now())
	}
	// Until now imbang vrrp clean could resign for a program that was killed.
	_ = os.Remove(place.VRRPHandover(l.Dir))
	l.look()
	return nil
}

// abandon ends a process that cannot run, because of an error. Groups that it went on with, or
// was about to, resign. What they have left on the host, or a process that was killed, is removed.
func (l *loop) abandon(before *handover, err error) error {
	if l.started {
		l.stop()
		return err
	}
	if before.Groups != nil {
		l.Log.Error("the program cannot go on with what the earlier one handed over", "error", oneLine(err))
		if l.plane != nil {
			for name, slot := range before.Slots {
				l.noted(planeError{useLease, name}, l.plane.Renew(slot, 0))
			}
		}
		resign(before, l.Log)
		_ = os.Remove(place.VRRPHandover(l.Dir))
	}
	if errors.Is(err, errNoAnswer) { // nor would it now
		return err
	}
	return errors.Join(err, cleanUp(l.Log, l.OpenPlane))
}

// noteStale logs that marked addresses of an earlier process are about to be removed.
func (l *loop) noteStale() {
	for _, d := range l.devices {
		var stale []vrrp.Address
		for _, a := range d.Addresses {
			if one := (vrrp.Address{Device: d.Name, Prefix: a.Prefix}); a.Protocol == host.Mark && !l.held(one) {
				stale = append(stale, one)
			}
		}
		if len(stale) > 0 {
			l.Log.Info("addresses of an earlier process are removed", "device", d.Name, "addresses", texts(stale))
		}
	}
}

// startPatience is how long a start waits for the kernel.
const startPatience = time.Minute

var errNoAnswer = errors.New("the kernel has not answered")

// settle waits until the worker has done what the loop has asked for so far.
func (l *loop) settle(patience time.Duration) bool {
	for deadline := now() + patience; ; {
		for _, f := range l.poll.take() {
			f()
		}
		l.flush(now())
		l.sendResignations(now())
		if l.settled() && !l.anyJoining() {
			return true
		}
		left := deadline - now()
		if left <= 0 {
			return false
		}
		if l.clean && !l.busy {
			left = min(left, max(l.cleanAfter-now(), 0))
		}
		for _, g := range l.groups {
			if g.resignAt != 0 {
				left = min(left, max(g.resignAt-now(), 0))
			}
		}
		l.poll.waitPosted(left)
	}
}

func (l *loop) anyJoining() bool {
	for _, s := range l.sockets {
		if s.joining {
			return true
		}
	}
	return false
}

// stop leaves all groups, and waits for notify commands. The leases of all groups end first,
// as the other director may be master of the next one at once, and addresses go last.
func (l *loop) stop() {
	l.stopping = true
	for _, g := range l.groups {
		g.out.Reset()
		g.machine.Shutdown(now(), &g.out)
		g.next = 0
	}
	step := func(wanted func(vrrp.ActionKind) bool) {
		for _, g := range l.groups {
			for i := range g.out.Actions {
				if a := &g.out.Actions[i]; wanted(a.Kind) {
					g.do(a)
				}
			}
		}
	}
	step(func(k vrrp.ActionKind) bool { return k == vrrp.ActionLease })
	step(func(k vrrp.ActionKind) bool { return k == vrrp.ActionAdvertise })
	step(func(k vrrp.ActionKind) bool { return k != vrrp.ActionLease && k != vrrp.ActionAdvertise })
	if l.settle(stopPatience) || l.settled() {
		l.unguard()
	} else { // the director goes on to keep the kernel from answering for them
		l.Log.Error("addresses are left: the kernel has not removed them (imbang vrrp clean does)", "after", stopPatience, "error", l.cleanError)
	}
	if !l.hooks.Wait(stopPatience) {
		l.Log.Warn("notify commands are killed: they have not ended", "after", stopPatience)
	}
}

// Between failures to read the devices.
const lookAgainAfter = 100 * time.Millisecond

// look has the worker read the devices.
func (l *loop) look() {
	l.lookAt = 0
	if l.looking {
		l.lookAgain = true
		return
	}
	l.looking, l.lookAgain = true, false
	changes := l.changes
	l.worker.do(func() {
		devices, err := l.links.Devices()
		l.poll.post(func() { l.looked(devices, err, changes) })
	})
}

// looked acts on what has changed. The addresses are those of now unless the worker was asked
// to change them since.
func (l *loop) looked(devices map[string]*host.Device, err error, changes uint64) {
	l.looking = false
	if err != nil {
		if l.lookError != err.Error() {
			l.Log.Error("devices cannot be read; that is tried again", "error", err)
		}
		l.lookError, l.lookAt = err.Error(), now()+lookAgainAfter
		return
	}
	l.lookError = ""
	renumbered := l.renumbered(devices)
	l.devices = devices
	if renumbered {
		l.seek()
	}
	l.openSockets()
	current := changes == l.changes && !l.busy && len(l.toAdd) == 0
	if current {
		l.verify(now())
	}
	l.reviewAll(now())
	if l.lookAgain || !current {
		l.look()
	}
}

// reviewAll tells all machines of what has changed around them, and starts those that waited
// for a socket.
func (l *loop) reviewAll(t time.Duration) {
	if !l.started {
		return
	}
	for _, g := range l.groups {
		if g.machine.State() == vrrp.Initialize && !g.joining() && !l.stopping {
			g.begin(t)
		} else {
			g.review(t)
		}
	}
}

// reload changes to another configuration, without a transition.
func (l *loop) reload(wanted *setup.Setup, err error) {
	if l.replacing != nil { // the next program reads the file itself
		l.replacing.reload = func() { l.reload(wanted, err) }
		return
	}
	if err == nil && wanted == nil {
		err = errors.New("the configuration has no section vrrp: stop the process instead")
	}
	if err != nil {
		l.loadError = err.Error()
		l.Log.Error("the configuration is not valid: nothing was changed", "error", oneLine(err))
		return
	}
	t := now()
	l.setup, l.loaded, l.loadError = wanted, time.Now(), ""
	l.tracker.set(wanted.Scripts, nil)
	var kept []*group
	for _, g := range l.groups { // first, as another group may get an address
		if slices.ContainsFunc(wanted.Groups, func(w setup.Group) bool { return w.Name == g.setup.Name }) {
			kept = append(kept, g)
			continue
		}
		g.call(func(m *vrrp.Machine, out *vrrp.Output) { m.Shutdown(t, out) })
		g.resigned() // its socket may be closed
	}
	l.groups = nil
	for i := range wanted.Groups {
		w := &wanted.Groups[i]
		at := slices.IndexFunc(kept, func(g *group) bool { return g.setup.Name == w.Name })
		if at >= 0 {
			kept[at].changed(w)
			l.groups = append(l.groups, kept[at])
			continue
		}
		g := newGroup(l, w)
		if err := g.make(); err != nil {
			l.Log.Error("the group cannot be made", "group", w.Name, "error", err) // the parser has tried it
			continue
		}
		l.groups = append(l.groups, g)
	}
	l.openSockets()
	l.guard()
	for _, g := range l.groups {
		if g.machine.State() != vrrp.Initialize {
			g.reload(t)
			g.forgive()
		}
	}
	l.reviewAll(t)
	l.look()
	l.Log.Info("configuration reloaded", "groups", len(l.groups))
}

// scriptChanged is called when a script's verdict has changed.
func (l *loop) scriptChanged(name string) {
	t := now()
	for _, g := range l.groups {
		if slices.Contains(g.setup.Scripts, name) {
			g.review(t)
		}
	}
}
