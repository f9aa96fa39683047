// SPDX-License-Identifier: Apache-2.0

//go:build prototypes

package main

import (
	"fmt"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// As in pages.h, room.h and buckets.h.
const (
	blockBytes    = 4032
	bucketEntries = 5
	firstBuckets  = 32
	maxBuckets    = 1 << 15 * 62
	pagesAtOnce   = 64 // in one call of the kernel
	pagesAhead    = 12 // that the process keeps empty: room for one small batch
	shareAhead    = 16 // and so much of those in use
)

// growth is what the process knows of a table of pages.
type growth struct {
	entries, buckets pages
}

type pages struct {
	outer    *ebpf.Map
	template *ebpf.MapSpec
	perPage  int // blocks
	made     int // pages
}

// linesOf is how many lines a block has, and in how many the first is its head.
func (t *table) linesOf() int {
	if t.Maps["entry_pages"] == nil {
		return 63
	}
	return 62
}

func preparePages(spec *ebpf.CollectionSpec, capacity int) error {
	v := spec.Variables["array_pad"]
	if v == nil {
		return fmt.Errorf("no variable array_pad")
	}
	offset, err := arrayValues()
	if err != nil {
		return err
	}
	if err := v.Set((64 - offset%64) % 64); err != nil {
		return err
	}
	if spec.Maps["entry_pages"] == nil && capacity != 0 {
		return spec.Variables["blocks_bound"].Set(uint32((capacity + 61) / 62))
	}
	return nil
}

// arrayValues is where the elements of the kernel's array maps begin, behind a page's begin
// [bytes].
func arrayValues() (uint32, error) {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return 0, err
	}
	var array *btf.Struct
	if err := kernel.TypeByName("bpf_array", &array); err != nil {
		return 0, err
	}
	offset, ok := memberOffset(array.Members, "value")
	if !ok {
		return 0, fmt.Errorf("struct bpf_array has no member value")
	}
	return offset, nil
}

func memberOffset(members []btf.Member, name string) (uint32, bool) {
	for _, m := range members {
		if m.Name == name {
			return m.Offset.Bytes(), true
		}
		if m.Name != "" {
			continue
		}
		var inner []btf.Member
		switch t := btf.UnderlyingType(m.Type).(type) {
		case *btf.Struct:
			inner = t.Members
		case *btf.Union:
			inner = t.Members
		}
		if at, ok := memberOffset(inner, name); ok {
			return m.Offset.Bytes() + at, true
		}
	}
	return 0, false
}

// startPages makes the first buckets, and room for so many entries.
func startPages(t *table, capacity int) error {
	g := &growth{}
	t.state = g
	if outer := t.Maps["entry_pages"]; outer != nil {
		template := untyped(t.templates["entry_pages"].InnerMap)
		g.entries = pages{outer: outer, template: template, perPage: int(template.MaxEntries)}
		g.buckets = pages{outer: t.Maps["bucket_pages"], template: template, perPage: int(template.MaxEntries)}
		entries, buckets := 1, 1
		if capacity != 0 {
			blocks := (capacity + 60) / 61
			entries = (blocks + g.entries.perPage - 1) / g.entries.perPage
			buckets = t.bucketPages(blocks)
		}
		if err := t.addPages(&g.buckets, buckets); err != nil {
			return err
		}
		if err := t.addPages(&g.entries, entries); err != nil {
			return err
		}
		made := entries * g.entries.perPage
		if capacity != 0 {
			made = (capacity + 60) / 61
		}
		if err := t.set32("blocks_made", uint32(made)); err != nil {
			return err
		}
	}
	q := request{Count: firstBuckets}
	if err := t.runHere("begin", &q); err != nil {
		return err
	}
	if t.keepUp != nil && !t.fixed {
		return t.keepUp(t)
	}
	return nil
}

// runHere runs a program for the process: on the last CPU.
func (t *table) runHere(program string, q *request) error {
	cpu := runtime.NumCPU() - 1
	release, err := bind(cpu)
	if err != nil {
		return err
	}
	defer release()
	return t.run(program, cpu, q)
}

// bucketPages is how many pages the buckets for so many blocks of entries need.
func (t *table) bucketPages(blocks int) int {
	buckets := min(max(blocks*(t.linesOf()-1)/bucketEntries, firstBuckets)+1, maxBuckets)
	perPage := t.state.(*growth).buckets.perPage * t.linesOf()
	return (buckets + perPage - 1) / perPage
}

// addPages makes pages until there are so many.
func (t *table) addPages(p *pages, want int) error {
	for p.made < want {
		var at []uint32
		var maps []*ebpf.Map
		for ; p.made+len(at) < want && len(at) < pagesAtOnce; at = append(at, uint32(p.made+len(at))) {
			m, err := ebpf.NewMap(p.template)
			if err != nil {
				return err
			}
			maps = append(maps, m)
		}
		if pageMemlock[t.name] == 0 {
			pageMemlock[t.name] = memlockOf(maps[0])
		}
		err := putAll(p.outer, at, maps)
		for _, m := range maps {
			m.Close() // the outer map holds it
		}
		if err != nil {
			return err
		}
		t.inner += pageMemlock[t.name] * uint64(len(maps))
		p.made += len(at)
	}
	return nil
}

// pageMemlock is what the kernel says of one page, by design [bytes].
var pageMemlock = map[string]uint64{}

// growPages keeps pages ready for what the programs will begin next: buckets first.
func growPages(t *table) error {
	g := t.state.(*growth)
	begun := int(t.get("blocks_begun"))
	want := begun/g.entries.perPage + max(pagesAhead, begun/g.entries.perPage/shareAhead)
	if g.entries.perPage > 8 {
		want = begun/g.entries.perPage + 2 // of 2 MB
	}
	if want <= g.entries.made {
		return nil
	}
	want = min(want, int(g.entries.outer.MaxEntries()))
	if err := t.addPages(&g.buckets, t.bucketPages(want*g.entries.perPage)); err != nil {
		return err
	}
	if err := t.addPages(&g.entries, want); err != nil {
		return err
	}
	return t.set32("blocks_made", uint32(g.entries.made*g.entries.perPage))
}
