// SPDX-License-Identifier: Apache-2.0

package process

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/daemon/check"
	"imbang/internal/daemon/place"
	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/control"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/daemon/vrrp/socket"
	"imbang/internal/host"
	"imbang/internal/jsonfile"
)

// handoverFormat increases if an earlier version of the program would read something wrongly. One
// of a higher format is not used. What is added does not increase it.
const handoverFormat = 1

// handover is what the next program of this process goes on with. It needs neither the
// configuration's file, which may not be valid, nor the kernel's RTNL lock.
type handover struct {
	Format  int    // handoverFormat of the program
	PID     int    // so that no other process uses it
	Process string // identity, for the same purpose; empty: an earlier version of the program did not write it
	Setup   *setup.Setup
	Groups  map[string]vrrp.Snapshot
	Memory  map[string]memory
	Scripts map[string]rememberedScript
	Devices map[string]*host.Device
	// Sockets and Lock are descriptors that stay open. This version finds the lock by itself.
	Sockets []socket.Kept
	Lock    int
	// Facts are what the daemon reported, Awaited the number of the last request for connections.
	// Merges is how many merges were requested.
	Facts   facts
	Awaited uint64
	Merges  uint64
	// Slots are the numbers of the groups' leases, and Guarded the addresses that have one.
	// Addresses keep theirs, as those of a number that is new to them are without a lease for a
	// moment.
	Slots   map[string]uint32
	Guarded map[netip.Addr]uint32

	refused error // why Setup is not used
}

// memory is what the process itself knows of a group.
type memory struct {
	Since    time.Time
	Cause    vrrp.Cause
	Refrains bool
	Failures int
	Sources  []netip.Addr
	Awaited  uint64         // since when it waits for connections
	Merge    *control.Merge // that is under way
}

type rememberedScript struct {
	Script  setup.Script
	State   check.State
	Assumed check.Verdict
}

// inherit takes the lock of the directory, and what an earlier program of this process has
// left, which stays until the groups have started. What another process has left is removed: it
// was killed.
func (l *loop) inherit() (handover, error) {
	h, err := readHandover(l.Dir)
	if err != nil {
		l.Log.Error("what the earlier program handed over cannot be used: the groups start anew", "error", err)
	}
	// This is first: a process cannot take a lock that it has by another descriptor.
	l.lock = place.InheritVRRP(l.Dir)
	own := err == nil && h.own(l.lock != nil)
	if l.lock == nil {
		if l.lock, err = place.TakeVRRP(l.Dir); err != nil {
			return handover{}, err
		}
	}
	if !own {
		_ = os.Remove(place.VRRPHandover(l.Dir))
		return handover{}, nil
	}
	if h.refused != nil {
		l.Log.Error("the configuration that the earlier program handed over cannot be used: the file is read", "error", h.refused)
	}
	return h, nil
}

// own reports whether it is of this process.
func (h *handover) own(inherited bool) bool {
	if h.PID != os.Getpid() {
		return false
	}
	if h.Process == "" {
		return inherited
	}
	return h.Process == identity()
}

// readHandover reads what a program has left; nothing: an empty one.
func readHandover(dir string) (h handover, err error) {
	text, err := os.ReadFile(place.VRRPHandover(dir))
	if errors.Is(err, os.ErrNotExist) {
		return h, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &h)
	}
	if err == nil {
		err = h.check(now())
	}
	if err != nil {
		return handover{}, err
	}
	return h, nil
}

// check refuses what this program does not understand, and a configuration that another version
// of it wrote otherwise.
func (h *handover) check(t time.Duration) error {
	if h.Format > handoverFormat {
		return fmt.Errorf("its format is %d, and this version of the program reads up to %d", h.Format, handoverFormat)
	}
	for name, s := range h.Groups {
		if s.Seen > t {
			return fmt.Errorf("group %s: it is of an earlier start of the machine", name)
		}
	}
	maps.DeleteFunc(h.Devices, func(_ string, d *host.Device) bool { return d == nil })
	if h.refused = checkSetup(h.Setup); h.refused != nil {
		h.Setup = nil
	}
	return nil
}

// checkSetup refuses a configuration that no parser has made.
func checkSetup(s *setup.Setup) error {
	if s == nil {
		return nil
	}
	names := map[string]bool{}
	for i := range s.Groups {
		g := &s.Groups[i]
		if names[g.Name] {
			return fmt.Errorf("group %s: it is there twice", g.Name)
		}
		names[g.Name] = true
		for j := range g.Routers {
			if r := &g.Routers[j]; len(r.All()) == 0 {
				return fmt.Errorf("group %s: virtual router %d has no address", g.Name, r.ID)
			}
		}
		if _, err := vrrp.New(g.Machine(g.Priority, make([]netip.Addr, len(g.Routers)))); err != nil {
			return fmt.Errorf("group %s: %w", g.Name, err)
		}
	}
	for i := range s.Scripts {
		if one := &s.Scripts[i]; len(one.Command) == 0 || one.Interval <= 0 || one.Timeout <= 0 {
			return fmt.Errorf("script %s: it has no command, interval or timeout", one.Name)
		}
	}
	return nil
}

// replacement is a handover under way. Track scripts end first, and notify commands, or the
// next program would not know of them.
type replacement struct {
	since  time.Duration
	ending bool
	killed bool
	ended  bool
	// announcing: the program ends as soon as others know of the longer interval.
	announcing bool
	reload     func() // that came meanwhile, for the case that the replacement fails
}

const (
	replacementStep = 10 * time.Millisecond // between looks at what is waited for
	helpersPatience = 2 * time.Second       // for what was killed, and for the kernel
	logPatience     = 10 * time.Millisecond // nothing is advertised meanwhile
	// bridge is the interval that masters announce before, so that others wait for three of it:
	// a program starts in some 10 ms, and on a machine that is busy in some 100. A master that
	// fails just then is replaced as late.
	bridge = time.Second
)

// replacementPatience is how long notify commands have before a handover. Tests change it.
var replacementPatience = 10 * time.Second

func (l *loop) beginReplacement() {
	if l.replacing == nil {
		l.replacing = &replacement{since: now()}
	}
}

// replace goes on with a replacement. The error is ErrReplaced; otherwise the loop goes on.
func (l *loop) replace() error {
	r, waited := l.replacing, now()-l.replacing.since
	if !r.ending {
		if r.killed = waited > replacementPatience; !r.killed && !l.hooks.Idle() {
			return nil
		}
		if r.killed {
			l.Log.Warn("notify commands are killed: they have not ended", "after", replacementPatience)
		}
		r.ending = true
		go func() {
			l.tracker.close()
			if r.killed {
				l.hooks.Close()
			}
			l.poll.post(func() { r.ended = true })
		}()
		return nil
	}
	idle := r.ended && (r.killed || l.hooks.Idle()) && !l.looking && l.settled() && !l.anyJoining() && len(l.outbox) == 0
	r.announcing = idle || waited >= replacementPatience+helpersPatience
	if !r.announcing || !l.bridged(cmp.Or(l.bridge, bridge)) {
		return nil
	}
	l.replacing = nil
	return l.execute(r)
}

// bridged has masters announce an interval until the next program goes on; 0: their own. It
// reports whether others know it.
func (l *loop) bridged(interval time.Duration) bool {
	all := true
	for _, g := range l.groups {
		g.call(func(m *vrrp.Machine, out *vrrp.Output) { all = m.Bridge(now(), interval, out) && all })
	}
	return all
}

// execute hands over to the program file. It returns nil if that failed and the loop goes on.
func (l *loop) execute(r *replacement) error {
	if l.Execute == nil {
		l.bridged(0)
		l.Log.Error("the program cannot be replaced, and goes on: there is no program to execute")
		return nil
	}
	l.Log.Info("the program is executed again", "groups", len(l.groups))
	drain(l.Log, logPatience)
	h, err := l.handOver()
	if err == nil {
		if err = l.Execute(); err == nil {
			return ErrReplaced
		}
	}
	_ = os.Remove(place.VRRPHandover(l.Dir))
	for _, s := range l.sockets {
		if s.Socket != nil {
			s.Unkeep()
		}
	}
	unix.CloseOnExec(int(l.lock.Fd()))
	l.bridged(0)
	l.Log.Error("the program cannot be replaced, and goes on", "error", err)
	l.hooks.Close()
	l.openHelpers()
	l.tracker.set(l.setup.Scripts, h.Scripts)
	if r.reload != nil {
		r.reload()
	}
	return nil
}

// handOver writes the handover, and keeps its descriptors open.
func (l *loop) handOver() (handover, error) {
	h := handover{
		Format: handoverFormat, PID: os.Getpid(), Process: identity(), Setup: l.setup, Groups: map[string]vrrp.Snapshot{}, Memory: map[string]memory{},
		Scripts: l.tracker.remember(), Devices: l.devices, Lock: int(l.lock.Fd()),
		Facts: l.facts, Awaited: l.awaited, Merges: l.merges, Slots: l.slots, Guarded: l.guarded,
	}
	for _, g := range l.groups {
		g.resigned() // the next program does not know of it
	}
	if _, err := unix.FcntlInt(l.lock.Fd(), unix.F_SETFD, 0); err != nil {
		return h, fmt.Errorf("handover: %w", err)
	}
	for _, s := range l.sockets {
		if s.Socket == nil {
			continue
		}
		kept, err := s.Keep()
		if err != nil {
			return h, fmt.Errorf("handover: %w", err)
		}
		h.Sockets = append(h.Sockets, kept)
	}
	for _, g := range l.groups {
		h.Groups[g.setup.Name] = g.machine.Snapshot()
		h.Memory[g.setup.Name] = memory{g.since, g.cause, g.refrains, g.failures, g.sources, g.awaited, g.merge}
	}
	return h, writeHandover(l.Dir, h)
}

// adopt goes on with the earlier program's sockets. Others that it left are closed.
func (l *loop) adopt(sockets []socket.Kept) {
	for _, k := range sockets {
		s, err := socket.Adopt(k)
		if err != nil {
			l.Log.Warn("a socket of the earlier program cannot be used: another one is opened", "error", err)
			continue
		}
		at := spot{k.Device, k.IPv6}
		l.sockets[at] = l.pollSocket(at, s)
	}
	socket.CloseInherited()
}

func writeHandover(dir string, h handover) error {
	if err := jsonfile.WritePrivate(place.VRRPHandover(dir), h); err != nil {
		return fmt.Errorf("handover: %w", err)
	}
	return nil
}
