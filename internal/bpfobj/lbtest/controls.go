// SPDX-License-Identifier: Apache-2.0

package lbtest

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ControlsMap is the name of the map that holds the controls. It is no table
// of the data plane and is not pinned.
const ControlsMap = ".data.variant"

// Controls is what user space sets of a loaded variant. It takes effect at
// once; programs on all CPUs read the same memory.
type Controls struct {
	memory []byte
	c      *LbControls
}

// NewControls maps the controls of a loaded variant into memory. The map may be
// closed afterwards.
func NewControls(m *ebpf.Map) (*Controls, error) {
	memory, err := unix.Mmap(m.FD(), 0, int(m.ValueSize()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the controls of the test variant (%s): %w", ControlsMap, err)
	}
	return &Controls{memory, (*LbControls)(unsafe.Pointer(&memory[0]))}, nil
}

// Close gives the memory back. The variant keeps what was set.
func (c *Controls) Close() error {
	if c.memory == nil {
		return nil
	}
	memory := c.memory
	c.memory, c.c = nil, nil
	return unix.Munmap(memory)
}

// SetTime sets what every clock of the data plane reads, since boot
// (CLOCK_MONOTONIC); 0 lets it read the kernel's.
func (c *Controls) SetTime(t time.Duration) { atomic.StoreUint64(&c.c.Time, uint64(t)) }

// Time is what SetTime set.
func (c *Controls) Time() time.Duration { return time.Duration(atomic.LoadUint64(&c.c.Time)) }

// Seed makes random numbers the sequence of a seed.
func (c *Controls) Seed(seed uint64) {
	atomic.StoreUint64(&c.c.Random, seed)
	atomic.StoreUint32(&c.c.Seeded, 1)
}

// SetTries limits retry loops to n iterations; 0 lets each have its own limit.
func (c *Controls) SetTries(n uint32) { atomic.StoreUint32(&c.c.FewTries, n) }

// TimersOff keeps start_clocks from starting timers: time passes only by the
// programs sweep_now, beat_rates and beat_sweep. It is set before the director
// starts its timers.
func (c *Controls) TimersOff() { atomic.StoreUint32(&c.c.TimersOff, 1) }

// AnyCPU is for hooks that stop a program on any CPU.
const AnyCPU = -1

// Hook is a hook point that was armed.
type Hook struct {
	point LbHookPoint
	s     *LbHookState
}

// Arm makes the next `stops` arrivals at a point stop there, one after the
// other, each until it is released or twelve seconds have passed. With a CPU
// other than AnyCPU only arrivals on that one count. What was armed at this
// point before ends.
func (c *Controls) Arm(point LbHookPoint, cpu, stops int) Hook {
	return c.ArmAfter(point, cpu, 0, stops)
}

// ArmAfter is Arm for arrivals after the first few, which pass.
func (c *Controls) ArmAfter(point LbHookPoint, cpu, skip, stops int) Hook {
	s := &c.c.Hooks[point]
	atomic.StoreUint32(&s.Stops, 0)
	s.Cpu, s.Skip = uint32(cpu+1), uint32(skip)
	s.Reached, s.Released, s.Expired = 0, 0, 0
	atomic.StoreUint32(&s.Stops, uint32(stops))
	return Hook{point, s}
}

// Disarm lets all arrivals pass that have not come yet.
func (h Hook) Disarm() { atomic.StoreUint32(&h.s.Stops, 0) }

// Reached is how many arrivals have stopped so far.
func (h Hook) Reached() int { return int(atomic.LoadUint32(&h.s.Reached)) }

// Await waits until the n-th arrival (counted from 1) has stopped.
func (h Hook) Await(n int) error {
	for deadline := time.Now().Add(10 * time.Second); h.Reached() < n; time.Sleep(50 * time.Microsecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("hook point %d: %d operations stopped there, not %d", h.point, h.Reached(), n)
		}
	}
	return nil
}

// Release lets the first n arrivals go on.
func (h Hook) Release(n int) { atomic.StoreUint32(&h.s.Released, uint32(n)) }

// Expired is how many arrivals were not released in time: what came after them
// says nothing.
func (h Hook) Expired() int { return int(atomic.LoadUint32(&h.s.Expired)) }

// faultMaps are the names of enum fault_map.
var faultMaps = [LbFaultMapFAULT_MAPS]string{
	"spare_blocks", "calls", "call_numbers", "fragments", "allowances", "proofs",
	"localities", "locality_sets", "bucket_tables", "maglevs",
}

func (m LbFaultMap) String() string { return faultMaps[m] }

// Change is a change of a map's element that can be made to fail.
type Change struct {
	Map    LbFaultMap
	Delete bool // else an update
}

// Fault is a change that was made to fail.
type Fault struct{ f *LbFault }

// Fail lets `skip` changes of a map succeed, and the `times` next ones fail with an
// error, without having changed anything. What was set of this change before ends.
func (c *Controls) Fail(what Change, errno unix.Errno, skip, times int) Fault {
	f := &c.c.Faults[what.Map].Update
	if what.Delete {
		f = &c.c.Faults[what.Map].Remove
	}
	atomic.StoreUint32(&f.Times, 0)
	f.Error, f.Skip, f.Hits = -int32(errno), uint32(skip), 0
	atomic.StoreUint32(&f.Times, uint32(times))
	return Fault{f}
}

// Hits is how many changes have failed.
func (f Fault) Hits() int { return int(atomic.LoadUint32(&f.f.Hits)) }

// End lets all further changes succeed.
func (f Fault) End() { atomic.StoreUint32(&f.f.Times, 0) }
