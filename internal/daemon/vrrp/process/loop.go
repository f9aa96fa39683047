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
	"strings"
	"time"

	"imbang/internal/daemon/events"
	"imbang/internal/daemon/hooks"
	"imbang/internal/daemon/place"
	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/daemon/vrrp/socket"
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

// stopPatience is how long notify commands have at the end.
const stopPatience = 10 * time.Second

// loop has all state; its methods are called by one goroutine.
type loop struct {
	Options
	poll      *poller
	watch     *host.DeviceWatch
	announcer *host.Announcer
	hooks     *hooks.Queue
	tracker   *tracker

	setup         *setup.Setup
	devices       map[string]*host.Device
	sockets       map[spot]*opened
	routes        map[route]target
	groups        []*group
	advertisement vrrp.Advertisement // that is being received
	message       []byte             // that is being sent

	began       time.Time
	loaded      time.Time
	loadError   string
	notRealTime string        // why
	late        time.Duration // of ticks, at most
	stopping    bool
	replacing   bool

	controlled
	planeUse
	wants chan []neighbour // for surroundings
}

// spot is where a socket is.
type spot struct {
	device string
	ipv6   bool
}

// opened is a socket of a spot, or why there is none.
type opened struct {
	*socket.Socket
	err error
}

// route leads from a message to its virtual router.
type route struct {
	spot
	id uint8
}

type target struct {
	group  *group
	router int
}

// Run runs until the context ends, and leaves then: other directors take over at once.
func Run(ctx context.Context, o Options) (err error) {
	log, flush := newBehind(o.Log)
	defer flush()
	o.Log = log
	wanted, err := o.Load()
	if err != nil {
		return err
	}
	lock, err := place.TakeVRRP(o.Dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	// Sockets belong to the network namespace of the thread that opens them.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l := &loop{Options: o, sockets: map[spot]*opened{}, began: time.Now(), loaded: time.Now()}
	l.clients, l.macs = map[*controlClient]bool{}, map[neighbour]net.HardwareAddr{}
	if o.RealTime {
		end, err := realTime()
		defer end()
		if err != nil {
			l.notRealTime = strings.ReplaceAll(err.Error(), "\n", "; ")
			log.Warn("the process is not real-time: under load it may take itself for stalled", "error", l.notRealTime)
		}
	}
	defer l.close()
	if err := l.open(); err != nil {
		return err
	}
	served, err := l.serveStatus()
	if err != nil {
		return err
	}
	defer served()
	surrounded, err := l.surround()
	if err != nil {
		return err
	}
	defer surrounded()
	if err := l.start(wanted); err != nil {
		return err
	}
	controlled, err := l.serveControl() // now, as clients learn of all groups first
	if err != nil {
		return err
	}
	defer controlled()
	ended := make(chan struct{})
	defer close(ended)
	go l.signals(ctx, ended)
	if o.Ready != nil {
		o.Ready()
	}
	return l.run()
}

func (l *loop) open() (err error) {
	if l.poll, err = newPoller(); err != nil {
		return err
	}
	if l.watch, err = host.NewDeviceWatch(); err != nil {
		return err
	}
	if l.announcer, err = host.NewAnnouncer(); err != nil {
		return err
	}
	l.hooks = hooks.New(func(e events.Event) { l.Log.Error("notify command failed", "group", e.Service, "error", e.Text) })
	l.tracker = newTracker(l.poll.post, l.scriptChanged)
	return l.poll.add(l.watch.FD())
}

// close ends what open began, as far as it came.
func (l *loop) close() {
	if l.tracker != nil {
		l.tracker.close()
	}
	if l.hooks != nil {
		l.hooks.Close()
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
	if l.poll != nil {
		l.poll.close()
	}
}

// signals passes what others ask for to the loop.
func (l *loop) signals(ctx context.Context, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-ctx.Done():
			l.poll.post(func() { l.stopping = true })
			return
		case <-l.Reload:
			wanted, err := l.Load() // it reads files, and may take long
			l.poll.post(func() { l.reload(wanted, err) })
		case <-l.Replace:
			l.poll.post(func() { l.replacing = true })
		}
	}
}

// run is the loop.
func (l *loop) run() error {
	for {
		t := now()
		if l.watch.Drain() {
			l.look(t)
		}
		for _, s := range l.sockets {
			l.receive(t, s)
		}
		for _, f := range l.poll.take() {
			f()
		}
		if l.stopping {
			l.stop()
			return nil
		}
		if l.replacing && l.hooks.Idle() {
			if err := l.replace(); err != nil {
				return err
			}
		}
		next := time.Duration(0)
		for _, g := range l.groups {
			if g.next != 0 && t >= g.next {
				l.late = max(l.late, t-g.next)
				g.call(func(m *vrrp.Machine, out *vrrp.Output) { m.Tick(t, out) })
			}
			g.retry(t)
			for _, at := range [...]time.Duration{g.next, g.failedUntil} {
				if at != 0 && (next == 0 || at < next) {
					next = at
				}
			}
		}
		if at := l.expires(t); at == 0 {
			l.synchronize()
		} else if next == 0 || at < next {
			next = at
		}
		if again := t + 100*time.Millisecond; l.replacing && (next == 0 || again < next) {
			next = again // for notify commands to end
		}
		if err := l.poll.wait(next); err != nil {
			return err
		}
	}
}

// receive reads all messages of a socket.
func (l *loop) receive(t time.Duration, s *opened) {
	if s.Socket == nil {
		return
	}
	_, err := s.Receive(func(message []byte, p vrrp.Packet) {
		if len(message) < 2 {
			return // the filter of the socket requires two bytes
		}
		if to, known := l.routes[route{spot{s.Device, s.IPv6}, message[1]}]; known {
			to.group.receive(t, to.router, message, p)
		}
	})
	if err != nil { // of the device: changes of it are noticed by themselves
		l.Log.Debug("receive", "device", s.Device, "error", err)
	}
}

// start starts the groups: where an earlier program handed over, as it was there.
func (l *loop) start(wanted *setup.Setup) error {
	t := now()
	before, err := readHandover(l.Dir)
	if err != nil {
		l.Log.Error("what the earlier program handed over cannot be used: the groups start anew", "error", err)
	}
	l.setup = wanted
	l.tracker.set(wanted.Scripts, before.Scripts)
	if l.devices, err = host.Devices(); err != nil {
		return err
	}
	for i := range wanted.Groups {
		g := newGroup(l, &wanted.Groups[i])
		l.groups = append(l.groups, g)
		if snapshot, has := before.Groups[g.setup.Name]; has {
			if err := g.restore(t, snapshot); err == nil {
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
	l.dropStale(before)
	l.openSockets()
	for _, g := range l.groups {
		g.begin(now())
	}
	return nil
}

// dropStale removes marked addresses that no group holds.
func (l *loop) dropStale(before handover) {
	held := map[vrrp.Address]bool{}
	for _, g := range l.groups {
		if g.machine.State() == vrrp.Master {
			for _, a := range g.setup.AllAddresses() {
				held[a] = true
			}
		}
	}
	for _, d := range l.devices {
		var stale []vrrp.Address
		for _, a := range d.Addresses {
			if one := (vrrp.Address{Device: d.Name, Prefix: a.Prefix}); a.Protocol == host.Mark && !held[one] {
				stale = append(stale, one)
			}
		}
		if len(stale) > 0 {
			l.Log.Info("addresses of an earlier process are removed", "device", d.Name, "addresses", texts(stale))
			l.release(stale)
		}
	}
	for name := range before.Groups {
		if !slices.ContainsFunc(l.groups, func(g *group) bool { return g.setup.Name == name }) {
			l.Log.Warn("the earlier program had a group that is not configured any more: its addresses are removed without a resignation", "group", name)
		}
	}
}

func texts(addresses []vrrp.Address) string {
	var all []string
	for _, a := range addresses {
		all = append(all, a.Prefix.String())
	}
	return strings.Join(all, " ")
}

// stop leaves all groups, and waits for notify commands.
func (l *loop) stop() {
	for _, g := range l.groups {
		g.call(func(m *vrrp.Machine, out *vrrp.Output) { m.Shutdown(now(), out) })
	}
	l.unguard()
	if !l.hooks.Wait(stopPatience) {
		l.Log.Warn("notify commands are killed: they have not ended", "after", stopPatience)
	}
}

// look reads the devices and acts on what has changed.
func (l *loop) look(t time.Duration) {
	devices, err := host.Devices()
	if err != nil {
		l.Log.Error("devices cannot be read", "error", err)
		return
	}
	l.devices = devices
	l.openSockets()
	for _, g := range l.groups {
		if g.machine.State() == vrrp.Master {
			g.keepAddresses(t)
		}
		g.review(t)
	}
}

// openSockets opens and closes sockets, so that there is one for each device and family of
// the groups, and has each accept what is for it.
func (l *loop) openSockets() {
	type want struct {
		ids       []uint8
		multicast bool
	}
	wanted := map[spot]*want{}
	l.routes = map[route]target{}
	for _, g := range l.groups {
		for i := range g.setup.Routers {
			r := &g.setup.Routers[i]
			at := spot{r.Device, r.IPv6()}
			if wanted[at] == nil {
				wanted[at] = &want{}
			}
			wanted[at].ids = append(wanted[at].ids, r.ID)
			wanted[at].multicast = wanted[at].multicast || len(r.Peers) == 0
			l.routes[route{at, r.ID}] = target{g, i}
		}
	}
	for at, s := range l.sockets {
		d := l.devices[at.device]
		if wanted[at] == nil || s.Socket == nil || d == nil || d.Index != s.Index {
			if s.Socket != nil {
				s.Close()
			}
			delete(l.sockets, at)
		}
	}
	for at, w := range wanted {
		s := l.sockets[at]
		if s == nil {
			s = l.openSocket(at)
			l.sockets[at] = s
		}
		if s.Socket != nil {
			slices.Sort(w.ids)
			s.err = s.Accept(w.ids, w.multicast)
		}
	}
}

func (l *loop) openSocket(at spot) *opened {
	d := l.devices[at.device]
	if d == nil {
		return &opened{err: fmt.Errorf("there is no device %s", at.device)}
	}
	s, err := socket.Open(socket.Where{Device: at.device, Index: d.Index, IPv6: at.ipv6})
	if err == nil {
		if err = l.poll.add(s.FD()); err != nil {
			s.Close()
			s = nil
		}
	}
	return &opened{s, err}
}

// reload changes to another configuration, without a transition.
func (l *loop) reload(wanted *setup.Setup, err error) {
	if err == nil && wanted == nil {
		err = errors.New("the configuration has no section vrrp: stop the process instead")
	}
	if err != nil {
		l.loadError = err.Error()
		l.Log.Error("the configuration is not valid: nothing was changed", "error", strings.ReplaceAll(l.loadError, "\n", "; "))
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
		if g.machine.State() == vrrp.Initialize {
			g.begin(t)
		} else {
			g.reconfigure(t)
			g.review(t)
		}
	}
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
