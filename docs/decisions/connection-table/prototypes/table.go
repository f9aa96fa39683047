// SPDX-License-Identifier: Apache-2.0

//go:build prototypes

package main

import (
	"crypto/rand"
	"fmt"
	"math/bits"
	"runtime"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// A table is a loaded design.
type table struct {
	design
	*ebpf.Collection
	templates map[string]*ebpf.MapSpec
	inner     uint64 // memlock of maps that only an outer map holds [bytes]
	state     any    // the process's, of the design
	fixed     bool   // it has room for what it was made for, and the process adds none
}

// request is struct request of bench.h.
type request struct {
	First, Count, Step, Mask uint32
	Shift, Begin, Share, _   uint32
	Now, Timeout             uint64
	Opened                   uint64
	Zero                     uint64
	NS, Done, Failed         uint64
	Longest, Spent           uint64
}

// order has a request visit so many flows in a mixed order: a power of two.
func (q request) order(flows int) request {
	k := bits.TrailingZeros(uint(flows))
	q.Step, q.Mask, q.Shift = 2654435761, uint32(flows-1), uint32((k+1)/2)
	return q
}

// sequence is the request that visits flows from `first` on, in their order.
func sequence(first int) request {
	return request{First: uint32(first), Step: 1, Mask: 0xffffffff, Shift: 31}
}

var frame = make([]byte, 64)

// run runs a program for a request, on the CPU to which the thread is bound.
func (t *table) run(program string, cpu int, q *request) error {
	m, p := t.Maps["requests"], t.Programs[program]
	if m == nil || p == nil {
		return fmt.Errorf("%s has no program %s", t.name, program)
	}
	at := uint32(cpu)
	if err := m.Put(at, *q); err != nil {
		return err
	}
	ret, err := p.Run(&ebpf.RunOptions{Data: frame})
	if err != nil {
		return err
	}
	if ret != 0 {
		return fmt.Errorf("%s: %s returned %d", t.name, program, int32(ret))
	}
	return m.Lookup(at, q)
}

// batch is how many flows one run handles: softirqs are off for so long. In a table that grows
// the process has its turn after fewer.
const (
	batch      = 1 << 14
	smallBatch = 1 << 12
)

// each runs a program for flows in batches, and adds up. q is for the first batch.
func (t *table) each(program string, cpu int, q request, count int) (request, error) {
	sum := q
	sum.NS, sum.Done, sum.Failed, sum.Longest, sum.Spent = 0, 0, 0, 0, 0
	for count > 0 {
		q.Count = uint32(min(count, batch))
		if !t.fixed {
			q.Count = uint32(min(count, smallBatch))
		}
		if t.keepUp != nil && !t.fixed {
			if err := t.keepUp(t); err != nil {
				return sum, err
			}
		}
		one := q
		if err := t.run(program, cpu, &one); err != nil {
			return sum, err
		}
		sum.NS += one.NS
		sum.Done += one.Done
		sum.Failed += one.Failed
		sum.Longest = max(sum.Longest, one.Longest)
		sum.Spent += one.Spent
		sum.Opened, q.Opened = one.Opened, one.Opened
		q.Begin += q.Count
		count -= int(q.Count)
	}
	return sum, nil
}

// bind has this goroutine stay on a CPU. What it returns undoes that.
func bind(cpu int) (func(), error) {
	runtime.LockOSThread()
	var home, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &home); err != nil {
		return nil, err
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return nil, err
	}
	return func() {
		_ = unix.SchedSetaffinity(0, &home)
		runtime.UnlockOSThread()
	}, nil
}

// now is CLOCK_MONOTONIC [ns].
func now() uint64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return uint64(ts.Nano())
}

// get and set are global variables of the programs.
func (t *table) get(name string) uint64 {
	v := t.Variables[name]
	if v == nil {
		return 0
	}
	if v.Size() == 4 {
		var n uint32
		_ = v.Get(&n)
		return uint64(n)
	}
	var n uint64
	_ = v.Get(&n)
	return n
}

func (t *table) set32(name string, n uint32) error {
	v := t.Variables[name]
	if v == nil {
		return fmt.Errorf("%s has no variable %s", t.name, name)
	}
	return v.Set(n)
}

func drawSecrets(spec *ebpf.CollectionSpec) error {
	for _, name := range []string{"secret", "siphash_key"} {
		v := spec.Variables[name]
		if v == nil {
			continue
		}
		raw := make([]byte, v.Size())
		_, _ = rand.Read(raw)
		if err := v.Set(raw); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// memlock is what the kernel says of the table's maps [bytes].
func (t *table) memlock() uint64 {
	sum := t.inner
	for _, m := range t.Maps {
		sum += memlockOf(m)
	}
	return sum
}

func memlockOf(m *ebpf.Map) uint64 {
	info, err := m.Info()
	if err != nil {
		return 0
	}
	n, _ := info.Memlock()
	return n
}
