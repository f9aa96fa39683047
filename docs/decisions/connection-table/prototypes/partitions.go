// SPDX-License-Identifier: Apache-2.0

//go:build prototypes

package main

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// As in partitions.bpf.c.
const (
	maxParts   = 4096
	firstPart  = 64 // entries
	partFuller = 3  // of 4: a partition that is fuller than that grows
	moveAtOnce = 4096
)

const (
	partCurrent = iota
	partFormer
	partNext
)

// partitions is what the process knows of them.
type partitions struct {
	number int
	size   []int // entries that each has room for
}

func preparePartitions(number int) func(*ebpf.CollectionSpec, int) error {
	return func(spec *ebpf.CollectionSpec, _ int) error {
		return spec.Variables["part_mask"].Set(uint32(number - 1))
	}
}

func startPartitions(t *table, capacity int) error {
	var mask uint32
	if err := t.Variables["part_mask"].Get(&mask); err != nil {
		return err
	}
	p := &partitions{number: int(mask) + 1}
	t.state = p
	size := firstPart
	if capacity != 0 {
		// Partitions are not equally full: room for four standard deviations more.
		mean := capacity / p.number
		size = mean + 4*sqrt(mean)
	}
	at, maps := []uint32{}, []*ebpf.Map{}
	for n := range p.number {
		m, err := t.makePart(size)
		if err != nil {
			return err
		}
		at, maps = append(at, uint32(partCurrent*maxParts+n)), append(maps, m)
		p.size = append(p.size, size)
	}
	defer closeAll(maps)
	return putAll(t.Maps["parts"], at, maps)
}

func sqrt(n int) int {
	r := 0
	for (r+1)*(r+1) <= n {
		r++
	}
	return r
}

func closeAll(maps []*ebpf.Map) {
	for _, m := range maps {
		m.Close()
	}
}

func (t *table) makePart(size int) (*ebpf.Map, error) {
	spec := untyped(t.templates["parts"].InnerMap)
	spec.MaxEntries = uint32(size)
	m, err := ebpf.NewMap(spec)
	if err == nil {
		t.inner += memlockOf(m)
	}
	return m, err
}

// growPartitions replaces partitions that have too little room, a sixteenth of all at once.
func growPartitions(t *table) error {
	for {
		group, err := t.fullParts()
		if err != nil || len(group) == 0 {
			return err
		}
		if err := t.growParts(group); err != nil {
			return err
		}
	}
}

// fullParts are partitions with too little room, at most a sixteenth of all.
func (t *table) fullParts() (group []int, err error) {
	p := t.state.(*partitions)
	used := make([]uint32, maxParts)
	if err := t.Variables["part_used"].Get(used); err != nil {
		return nil, err
	}
	for n := 0; n < p.number && len(group) < max(p.number/16, 1); n++ {
		if int(used[n])*4 > p.size[n]*partFuller {
			group = append(group, n)
		}
	}
	return group, nil
}

// growParts replaces some partitions by bigger ones.
func (t *table) growParts(group []int) error {
	p := t.state.(*partitions)
	growing := make([]uint32, maxParts)
	if err := t.Variables["part_growing"].Get(growing); err != nil {
		return err
	}
	outer := t.Maps["parts"]
	var former, next []*ebpf.Map
	defer func() { closeAll(former); closeAll(next) }()
	slots := func(which int) (at []uint32) {
		for _, n := range group {
			at = append(at, uint32(which*maxParts+n))
		}
		return at
	}
	for i, n := range group {
		var id ebpf.MapID
		if err := outer.Lookup(slots(partCurrent)[i], &id); err != nil {
			return err
		}
		old, err := ebpf.NewMapFromID(id)
		if err != nil {
			return err
		}
		former = append(former, old)
		p.size[n] = p.size[n] * 3 / 2
		m, err := t.makePart(p.size[n])
		if err != nil {
			return err
		}
		next = append(next, m)
		growing[n] = 1
	}
	// Each call returns when no program runs that has not seen it.
	for _, change := range []func() error{
		func() error { return putAll(outer, slots(partNext), next) },
		func() error { return putAll(outer, slots(partFormer), former) },
		func() error { return t.Variables["part_growing"].Set(growing) },
		func() error { return putAll(outer, slots(partNext), next) }, // the barrier for the variable
		func() error { return putAll(outer, slots(partCurrent), next) },
	} {
		if err := change(); err != nil {
			return err
		}
	}
	for _, n := range group {
		if err := t.movePart(n); err != nil {
			return err
		}
		growing[n] = 0
	}
	if err := t.Variables["part_growing"].Set(growing); err != nil {
		return err
	}
	for _, m := range former {
		t.inner -= memlockOf(m)
	}
	// The former maps go. `next` stays: outside of growth it is not looked at.
	return putAll(outer, slots(partFormer), next)
}

func (t *table) movePart(n int) error {
	for range 1 << 20 {
		q := request{First: uint32(n), Count: moveAtOnce}
		if err := t.runHere("move", &q); err != nil {
			return err
		}
		if q.Done == 0 && q.Failed == moveAtOnce {
			return nil // nothing is left
		}
	}
	return fmt.Errorf("partition %d: entries are left in its former map", n)
}
