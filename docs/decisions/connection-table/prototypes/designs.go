// SPDX-License-Identifier: Apache-2.0

//go:build prototypes

package main

import (
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// A design is one way to keep connections.
type design struct {
	name   string
	source string
	flags  []string
	// prepare sizes the maps before they are made.
	prepare func(spec *ebpf.CollectionSpec, capacity int) error
	// start does what a command does when the director is attached. With a capacity there is
	// room for so many entries at once; with 0 the table is as small as it begins.
	start func(t *table, capacity int) error
	// keepUp is one look of the process at a table that grows by itself or by the process. It is
	// nil if the table's size is fixed.
	keepUp func(t *table) error
	// grows says that the table begins small.
	grows bool
	// allocates says that it is made for its bound, and takes memory for entries as they come.
	allocates bool
	// looksEvery is how far the time has to move until each entry is looked at [ns].
	looksEvery uint64
	// evicts says that a full table ends entries to make room.
	evicts bool
}

// designs are what is compared; the first is the table as it is.
var designs = []design{
	{name: "hash and wheel", source: "old.bpf.c", prepare: prepareOld, start: startOld, looksEvery: 33_000_000_000},
	{name: "one hash", source: "single.bpf.c", prepare: prepareSingle(ebpf.Hash, true), allocates: true},
	{name: "one hash preallocated", source: "single.bpf.c", prepare: prepareSingle(ebpf.Hash, false)},
	{name: "LRU hash", source: "single.bpf.c", prepare: prepareSingle(ebpf.LRUHash, false), evicts: true},
	{name: "64 partitions", source: "partitions.bpf.c", prepare: preparePartitions(64), start: startPartitions, keepUp: growPartitions, grows: true},
	{name: "1024 partitions", source: "partitions.bpf.c", prepare: preparePartitions(1024), start: startPartitions, keepUp: growPartitions, grows: true},
	{name: "pages of 32 KB", source: "pages.bpf.c", flags: []string{"-DPAGES=1"}, prepare: preparePages, start: startPages, keepUp: growPages, grows: true},
	{name: "pages of 2 MB", source: "pages.bpf.c", flags: []string{"-DPAGES=1", "-DPAGE_BITS=9"}, prepare: preparePages, start: startPages, keepUp: growPages, grows: true},
	{name: "blocks in a hash", source: "pages.bpf.c", flags: []string{"-DPAGES=2"}, prepare: preparePages, start: startPages, grows: true},
	{name: "pages and blocks", source: "pages.bpf.c", flags: []string{"-DPAGES=3"}, prepare: preparePages, start: startPages, keepUp: growPages, grows: true},
	{name: "pages and blocks, no process", source: "pages.bpf.c", flags: []string{"-DPAGES=3"}, prepare: preparePages, start: startPages, grows: true},
}

// The size of a table whose size is fixed, if nothing else is said: the default of the director.
const fixed = 1 << 20

func sized(capacity int) uint32 {
	if capacity == 0 {
		return fixed
	}
	return uint32(capacity)
}

// prepareOld makes the maps as `imbang attach` does for so many connections (reserve.go).
func prepareOld(spec *ebpf.CollectionSpec, capacity int) error {
	n := sized(capacity)
	spec.Maps["conns4"].MaxEntries = n
	spec.Maps["conns4"].Flags &^= unix.BPF_F_NO_PREALLOC
	spec.Maps["timer_entries4"].MaxEntries = 3 * n / 2
	if m := spec.Maps["conns6"]; m != nil {
		m.MaxEntries = 1
	}
	if m := spec.Maps["timer_entries6"]; m != nil {
		m.MaxEntries = 1
	}
	return nil
}

// tick is the wheel's, log2 [ns]: clock.h.
const tick = 26

// startOld has the wheel's clock begin now.
func startOld(t *table, _ int) error {
	var clock struct {
		Timer [2]uint64
		Tick  uint32
		_     uint32
	}
	clock.Tick = uint32(now() >> tick)
	return t.Maps["clocks"].Put(uint32(0), &clock)
}

func prepareSingle(kind ebpf.MapType, noPrealloc bool) func(*ebpf.CollectionSpec, int) error {
	return func(spec *ebpf.CollectionSpec, capacity int) error {
		m := spec.Maps["table"]
		m.Type = kind
		m.MaxEntries = sized(capacity)
		m.Flags = 0
		if noPrealloc {
			m.Flags = unix.BPF_F_NO_PREALLOC
		}
		return nil
	}
}

// untyped is a template for maps that many are made of: each with types would have a copy of them
// in the kernel.
func untyped(template *ebpf.MapSpec) *ebpf.MapSpec {
	m := template.Copy()
	m.Key, m.Value = nil, nil
	return m
}

// putAll writes elements of an outer map in one call, so that the kernel waits for one grace
// period and not for one of each.
func putAll(outer *ebpf.Map, at []uint32, maps []*ebpf.Map) error {
	fds := make([]uint32, len(maps))
	for i, m := range maps {
		fds[i] = uint32(m.FD())
	}
	if len(at) == 0 {
		return nil
	}
	if _, err := outer.BatchUpdate(at, fds, nil); err != nil {
		return fmt.Errorf("%d maps into %s: %w", len(at), outer, err)
	}
	return nil
}
