// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/director/testrun"
	"imbang/internal/host"
)

// packetRound is what a round of a case cost, by one path.
type packetRound struct {
	NS     float64 `json:"ns"`               // a packet of one CPU, without making it
	Making float64 `json:"making"`           // [ns]
	Passed bool    `json:"passed,omitempty"` // XDP left the last packet to the classifiers
}

// round runs the packets of a case once by a path.
func (s *packetSite) round(path string) (r packetRound, err error) {
	p, err := trafficPathNamed(path)
	if err != nil {
		return r, err
	}
	way := p.client
	if s.Traffic == replies {
		way = p.out
	}
	err = s.on(0, func() error {
		made, _, err := s.times(s.loops[0], s.Packets, p.nowhere)
		r.Making = made
		return err
	})
	if err != nil {
		return r, err
	}
	stop, err := s.changeRoutes()
	if err != nil {
		return r, err
	}
	rate, passed, err := s.together(way)
	if err = errors.Join(err, stop()); err != nil {
		return r, err
	}
	if passed && p.nowhere != testrun.NowhereXDP {
		return r, s.lost(s.Packets, testrun.Passed)
	}
	r.NS, r.Passed = float64(len(s.loops))/rate-r.Making, passed
	return r, nil
}

// together runs the packets on all CPUs of the case at once: packets a nanosecond, of all
// CPUs, and whether the last one of a CPU was passed on.
func (s *packetSite) together(way testrun.Way) (rate float64, passed bool, err error) {
	var ready atomic.Int32
	var all sync.WaitGroup
	each, fates, errs := make([]float64, len(s.loops)), make([]testrun.Fate, len(s.loops)), make([]error, len(s.loops))
	for i, l := range s.loops {
		all.Go(func() {
			arrived := false
			arrive := func() {
				if !arrived {
					arrived = true
					ready.Add(1)
				}
			}
			defer arrive() // after a failure, too: others wait for all
			errs[i] = s.on(i, func() (err error) {
				if s.Lead > 0 {
					if _, _, err := s.times(l, s.Lead, way); err != nil {
						return err
					}
				}
				for arrive(); ready.Load() < int32(len(s.loops)); {
				}
				each[i], fates[i], err = s.times(l, s.Packets, way)
				return err
			})
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, false, err
	}
	for i := range s.loops {
		switch fates[i] {
		case testrun.Forwarded:
		case testrun.Passed:
			passed = true
		default:
			return 0, false, s.lost(s.Packets, fates[i])
		}
		rate += 1 / max(each[i], 1)
	}
	return rate, passed, nil
}

// times runs packets: nanoseconds each. A tunnel makes them longer, so that each needs a
// buffer of its own.
func (s *packetSite) times(l *testrun.PacketLoop, n int, way testrun.Way) (float64, testrun.Fate, error) {
	run := l.Times
	if s.Forward == ipip {
		run = l.Singly
	}
	each, fate, err := run(n, way)
	return float64(each.Nanoseconds()), fate, err
}

// on runs fn in the director's namespace, on the i-th CPU of the case.
func (s *packetSite) on(i int, fn func() error) error {
	return s.inside.Do(func() error { return onCPU(s.cpus[i], fn) })
}

// changeRoutes adds and removes a route that no packet takes, as often as the case says,
// until stop is called.
func (s *packetSite) changeRoutes() (stop func() error, err error) {
	if s.RouteChanges == 0 {
		return func() error { return nil }, nil
	}
	done, failed := make(chan struct{}), make(chan error)
	unrelated := host.Route{Dst: netip.MustParsePrefix("10.200.0.0/24"), Via: s.network.router}
	go func() {
		turns := time.NewTicker(time.Second / time.Duration(s.RouteChanges))
		defer turns.Stop()
		there := false
		for {
			select {
			case <-done:
				if there {
					failed <- s.inside.RemoveRoutes(unrelated)
				} else {
					failed <- nil
				}
				return
			case <-turns.C:
			}
			change := s.inside.AddRoutes
			if there {
				change = s.inside.RemoveRoutes
			}
			if err := change(unrelated); err != nil {
				<-done
				failed <- err
				return
			}
			there = !there
		}
	}()
	return func() error {
		close(done)
		return <-failed
	}, nil
}

// usableCPUs are the first n of those that this process may use.
func usableCPUs(n int) (list []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(unix.Getpid(), &set); err != nil {
		return nil, fmt.Errorf("the CPUs that this process may use: %w", err)
	}
	for cpu := 0; cpu < len(set)*64 && len(list) < n; cpu++ {
		if set.IsSet(cpu) {
			list = append(list, cpu)
		}
	}
	if len(list) < n {
		return nil, fmt.Errorf("%d CPUs are wanted, and %d may be used", n, len(list))
	}
	return list, nil
}

// onCPU runs fn on one CPU.
func onCPU(cpu int, fn func() error) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, only unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("the thread's CPUs: %w", err)
	}
	only.Set(cpu)
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return fmt.Errorf("run on CPU %d: %w", cpu, err)
	}
	defer func() { err = errors.Join(err, unix.SchedSetaffinity(0, &before)) }()
	return fn()
}
