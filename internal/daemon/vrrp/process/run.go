// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"runtime"
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

	bridge time.Duration // of tests, in place of the constant
}

// ErrReplaced is the error of a process whose successor goes on, if Execute returned nil.
var ErrReplaced = errors.New("the process was replaced")

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
		end, err := realTime(wanted)
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
	l.tracker = newTracker(l.poll.post, l.scriptChanged, l.scriptUnmade)
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
