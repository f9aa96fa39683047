// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/host"
)

// lookEvery is how often a director, its devices and neighbours are looked for.
const lookEvery = time.Second

// surroundings finds out what may take time: the kernel answers some questions only when
// others have changed the network. It is a goroutine of its own, on a thread in the network
// namespace of the loop's.
type surroundings struct {
	open  func() (Plane, error)
	post  func(func())
	found func(*findings) // called by the loop
	wants chan []neighbour

	plane Plane
	err   string
}

// neighbour is an address on a device.
type neighbour struct {
	index int
	addr  netip.Addr
}

// findings are what was found.
type findings struct {
	plane    Plane
	err      string // why a director that is loaded cannot be used
	attached []int  // devices; nil: not known
	macs     map[neighbour]net.HardwareAddr
}

// surround begins to look; the function that it returns ends that. A director that is loaded
// is open when it returns. All else may wait for other programs, for longer than a handover can.
// An earlier program that handed over knew of a director, or of none.
func (l *loop) surround(handedOver bool) (func(), error) {
	s := &surroundings{open: l.OpenPlane, post: l.poll.post, found: l.surrounded, wants: make(chan []neighbour, 1)}
	l.wants = s.wants
	if !handedOver {
		l.absent = absentLooks
	}
	s.refresh()
	l.surrounded(&findings{plane: s.plane, err: s.err})
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.run(ctx, ns)
	}()
	return func() {
		cancel()
		select {
		case <-done:
		case <-time.After(stopPatience): // the kernel keeps it, which uses these until the process ends
			return
		}
		ns.Close()
		if l.plane != nil {
			_ = l.plane.Close()
		}
		if s.plane != nil && s.plane != l.plane { // found, and not taken in any more
			_ = s.plane.Close()
		}
	}, nil
}

func (s *surroundings) run(ctx context.Context, ns *os.File) {
	runtime.LockOSThread() // and not unlocked: the thread may be in another namespace
	if err := enter(ns); err != nil {
		s.post(func() { s.found(&findings{plane: s.plane, err: err.Error()}) })
		return
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var wanted []neighbour
	for {
		f := s.look(wanted)
		s.post(func() { s.found(f) })
		select {
		case <-ctx.Done():
			return
		case wanted = <-s.wants:
		case <-tick.C:
		}
	}
}

// enter moves the calling thread to a network namespace, unless it is there already, as it
// is but for tests: that requires a capability.
func enter(ns *os.File) error {
	var a, b unix.Stat_t
	if err := errors.Join(unix.Fstat(int(ns.Fd()), &a), unix.Stat("/proc/thread-self/ns/net", &b)); err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	if a.Ino == b.Ino && a.Dev == b.Dev {
		return nil
	}
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	return nil
}

// refresh opens a director that is loaded. The loop closes the former one when it does not use
// it any more.
func (s *surroundings) refresh() {
	if s.open == nil || s.plane != nil && !s.plane.Stale() {
		return
	}
	p, err := s.open()
	s.plane, s.err = p, ""
	if err != nil {
		s.plane, s.err = nil, err.Error()
	}
}

func (s *surroundings) look(wanted []neighbour) *findings {
	s.refresh()
	f := &findings{plane: s.plane, err: s.err, macs: map[neighbour]net.HardwareAddr{}}
	if s.plane != nil {
		attached, err := s.plane.Attached()
		if err != nil {
			f.err = err.Error()
		} else {
			f.attached = append([]int{}, attached...)
		}
	}
	if f.resolve(wanted) {
		return f
	}
	time.Sleep(resolveTime) // the kernel has asked
	f.resolve(wanted)
	return f
}

// resolveTime is in which neighbours on a link reply.
const resolveTime = 20 * time.Millisecond

// resolve finds hardware addresses, and reports whether all are known.
func (f *findings) resolve(wanted []neighbour) bool {
	for _, n := range wanted {
		if f.macs[n] != nil {
			continue
		}
		mac, err := host.NeighbourMAC(n.index, n.addr)
		if err == nil && mac != nil {
			f.macs[n] = mac
		}
	}
	return len(f.macs) >= len(wanted)
}

// surrounded takes in what was found.
func (l *loop) surrounded(f *findings) {
	if f.plane != l.plane {
		if l.plane != nil {
			_ = l.plane.Close()
		}
		if (f.plane == nil) != (l.plane == nil) && l.began.Before(time.Now().Add(-lookEvery)) {
			l.Log.Info("director", "loaded", f.plane != nil)
		}
		l.setPlane(f.plane)
		if l.started {
			l.seekOthers()
		}
	}
	t := now()
	counts := l.lookedAt == 0 || t >= l.lookedAt+lookEvery*9/10
	if counts {
		l.lookedAt = t
	}
	l.noteAbsent(f.plane == nil, counts)
	var err error
	if f.err != "" {
		err = errors.New(f.err)
	}
	l.noted(planeError{use: useDirector}, err)
	if l.errs[planeError{use: useAddresses}] != "" {
		l.guard()
	}
	for n, mac := range f.macs { // what is not found now may still be right
		l.macs[n] = mac
	}
	for _, g := range l.groups {
		g.hand()
	}
	l.writePeers()
	if f.attached == nil || !counts {
		return
	}
	if len(l.attached) == 2 {
		l.attached = l.attached[1:]
	}
	l.attached = append(l.attached, f.attached)
	for _, g := range l.groups {
		if g.machine != nil && !slices.Equal(g.detached(), g.detachedBefore) {
			g.detachedBefore = g.detached()
			g.review(now())
		}
	}
}

// seek has the hardware addresses of the directors that are heard looked for.
func (l *loop) seek() {
	if l.wants == nil { // nobody looks
		return
	}
	known, all := l.neighbours()
	for n := range l.macs {
		if !slices.Contains(all, n) && !slices.Contains(known, n) {
			delete(l.macs, n)
		}
	}
	l.sought = all
	select { // in place of what was not looked at yet
	case <-l.wants:
	default:
	}
	l.wants <- all
}

// seekOthers likewise, if they are others than before.
func (l *loop) seekOthers() {
	if _, all := l.neighbours(); !slices.Equal(all, l.sought) {
		l.seek()
	}
}

// neighbours are those that are known, and not to be asked for, and those that are.
func (l *loop) neighbours() (known, all []neighbour) {
	for _, g := range l.groups {
		for i := range g.setup.Routers {
			if d := g.devices[g.setup.Routers[i].Device]; d != nil && g.heard[i].IsValid() {
				all = append(all, neighbour{d.Index, g.heard[i]})
			}
			if d := g.devices[g.setup.Routers[i].Device]; d != nil {
				for _, addr := range g.peerServers(i) {
					all = append(all, neighbour{d.Index, addr})
				}
			}
		}
	}
	for _, g := range l.groups {
		of, ask := g.unheardMasters()
		known, all = append(known, of...), append(all, ask...)
	}
	for _, n := range l.configuredPeers() {
		if !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	return known, all
}

// renumbered reports whether a device of a router has another index than before.
func (l *loop) renumbered(devices map[string]*host.Device) bool {
	for _, g := range l.groups {
		for i := range g.setup.Routers {
			name := g.setup.Routers[i].Device
			if now := devices[name]; now != nil && (l.devices[name] == nil || l.devices[name].Index != now.Index) {
				return true
			}
		}
	}
	return false
}
