// SPDX-License-Identifier: Apache-2.0

package director

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"imbang/internal/bpfobj"
)

// Programs cannot make maps, so a process adds pages to the connection table ahead of need: the one
// that makes the director, and from then on a daemon (Provide). Without it packets go on, with
// blocks that the kernel allocates one by one.

const (
	// pagesAhead are made at least.
	pagesAhead = 16
	// aheadShare is the part of the table that is ahead of it while it grows.
	aheadShare = 8
	// memoryShare is the part of the memory that the table may take.
	memoryShare = 16
)

func pagesOf(m *ebpf.Map) (p bpfobj.LbPageTable, err error) {
	if err := m.Lookup(uint32(0), &p); err != nil {
		return p, fmt.Errorf("read the connection table: %w", err)
	}
	return p, nil
}

// bucketShare is how many blocks of entries there are for one of buckets, in a full table: one bucket
// for BUCKET_ENTRIES lines of all blocks (bpf/table/reshape.h).
const bucketShare = 4

// blocksFor is how many blocks n connections of IPv4 need, with their buckets.
func blocksFor(n uint64) uint32 {
	entries := (n + blockEntries - 1) / blockEntries
	return uint32(min(1+entries+(entries+bucketShare-1)/bucketShare, maxBlocks))
}

// roomFor is how many connections of IPv4 so many blocks have room for.
func roomFor(blocks uint32) uint32 {
	return uint32(uint64(max(blocks, 1)-1) * bucketShare / (bucketShare + 1) * blockEntries)
}

// memoryLimit is the memory that this process may have, and the machine has [bytes].
func memoryLimit() (uint64, error) {
	var machine unix.Sysinfo_t
	if err := unix.Sysinfo(&machine); err != nil {
		return 0, fmt.Errorf("the machine's memory: %w", err)
	}
	limit := uint64(machine.Totalram) * uint64(machine.Unit)
	group, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return limit, nil
	}
	_, path, _ := strings.Cut(strings.TrimSpace(string(group)), "0::")
	for dir := filepath.Join("/sys/fs/cgroup", path); strings.HasPrefix(dir, "/sys/fs/cgroup"); dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "memory.max"))
		if err != nil {
			continue
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
			limit = min(limit, n)
		}
	}
	return limit, nil
}

// provision makes what a new connection table has: its bound, its secret, and its first pages.
// connections: 0 is a share of the memory.
func provision(maps map[string]*ebpf.Map, connections uint32) error {
	bound := blocksFor(uint64(connections))
	if connections == 0 {
		limit, err := memoryLimit()
		if err != nil {
			return err
		}
		const pageBytes = 1 << 15
		bound = uint32(min(limit/memoryShare/pageBytes*pageBlocks, uint64(blocksFor(MaxConnections))))
	}
	shift, err := lineShift()
	if err != nil {
		return err
	}
	pages := tableOf(maps, "pages")
	p, err := pagesOf(pages)
	if err != nil {
		return err
	}
	p.Bound, p.Shift = bound, shift
	if err := pages.Put(uint32(0), p); err != nil {
		return fmt.Errorf("prepare the connection table: %w", err)
	}
	return addPages(maps["block_pages"], pages, min(bound, pagesAhead*pageBlocks), 0)
}

// empty makes a connection table that no program uses as it was when it was made; its pages stay.
func empty(maps map[string]*ebpf.Map) error {
	var b bpfobj.LbBlockTable
	if err := tableOf(maps, "blocks").Lookup(uint32(0), &b); err != nil {
		return fmt.Errorf("read the connection table: %w", err)
	}
	for page := range (b.Taken + pageBlocks - 1) / pageBlocks {
		var inner *ebpf.Map
		if err := maps["block_pages"].Lookup(page, &inner); err != nil {
			return fmt.Errorf("empty the connection table: %w", err)
		}
		err := zeroArray(inner)
		inner.Close()
		if err != nil {
			return fmt.Errorf("empty the connection table: %w", err)
		}
	}
	return errors.Join(clearMap(maps["spare_blocks"]), clearMap(maps["bucket_blocks"]), clearMap(tableOf(maps, "blocks")), clearMap(tableOf(maps, "shape")))
}

// lineShift is how far the first element of an array is from the next cache line [bytes], by the
// kernel's types.
func lineShift() (uint32, error) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return 0, fmt.Errorf("the kernel's types: %w", err)
	}
	var array *btf.Struct
	if err := spec.TypeByName("bpf_array", &array); err != nil {
		return 0, fmt.Errorf("the kernel's type of arrays: %w", err)
	}
	offset, ok := memberOffset(array, "value")
	if !ok {
		return 0, errors.New("the kernel's type of arrays has no elements")
	}
	return -offset % lineBytes, nil
}

// memberOffset finds a member, also in unions without a name [bytes].
func memberOffset(in btf.Type, name string) (uint32, bool) {
	var members []btf.Member
	switch t := btf.UnderlyingType(in).(type) {
	case *btf.Struct:
		members = t.Members
	case *btf.Union:
		members = t.Members
	}
	for _, m := range members {
		if m.Name == name {
			return m.Offset.Bytes(), true
		}
		if m.Name != "" {
			continue
		}
		if offset, ok := memberOffset(m.Type, name); ok {
			return m.Offset.Bytes() + offset, true
		}
	}
	return 0, false
}

// pagesAtOnce is how many pages are made known at once: the kernel then waits for packets under way.
const pagesAtOnce = 64

// addPages makes pages until there are so many blocks in them. taken: so many are in use, whatever a
// process said that was killed while it took pages away.
func addPages(outer, pages *ebpf.Map, blocks, taken uint32) error {
	p, err := pagesOf(pages)
	if err != nil {
		return err
	}
	p.Made = max(p.Made, (taken+pageBlocks-1)/pageBlocks*pageBlocks)
	for end := min((blocks+pageBlocks-1)/pageBlocks, spareFirst/pageBlocks); p.Made/pageBlocks < end; {
		first := p.Made / pageBlocks
		n := min(end-first, pagesAtOnce)
		if err := putPages(outer, first, n); err != nil {
			return fmt.Errorf("add memory to the connection table: %w", err)
		}
		p.Made += n * pageBlocks
		if err := pages.Put(uint32(0), p); err != nil {
			return fmt.Errorf("add memory to the connection table: %w", err)
		}
	}
	return nil
}

// putPages makes n pages, from a number on.
func putPages(outer *ebpf.Map, first, n uint32) error {
	var made []*ebpf.Map
	defer func() {
		for _, m := range made {
			m.Close()
		}
	}()
	for range n {
		m, err := newPage()
		if err != nil {
			return err
		}
		made = append(made, m)
	}
	return setPages(outer, first, made)
}

// setPages puts pages there, from a number on.
func setPages(outer *ebpf.Map, first uint32, pages []*ebpf.Map) error {
	keys, descriptors := make([]uint32, len(pages)), make([]uint32, len(pages))
	for i, m := range pages {
		keys[i], descriptors[i] = first+uint32(i), uint32(m.FD())
	}
	_, err := outer.BatchUpdate(keys, descriptors, nil)
	if !errors.Is(err, ebpf.ErrNotSupported) {
		return err
	}
	for i, m := range pages {
		if err := outer.Put(keys[i], m); err != nil {
			return err
		}
	}
	return nil
}

// newPage makes an array of blocks.
func newPage() (*ebpf.Map, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "page", Type: ebpf.Array, KeySize: 4, ValueSize: blockBytes, MaxEntries: pageBlocks})
	return m, err
}

// blockBytes is BLOCK_BYTES of bpf/types.h.
const blockBytes = 4032

// initFlowSecret draws the secret of the hash of flows.
func initFlowSecret(m *ebpf.Map) error {
	var key [40]byte
	rand.Read(key[:]) // never fails
	return editConfig(m, func(c *bpfobj.LbConfigTable) {
		for i := range c.Hash.Summand {
			c.Hash.Summand[i] = binary.NativeEndian.Uint32(key[4*i:])
		}
	})
}

// provide adds the pages that the table needs soon, and says which blocks were in use before.
func (d *Director) provide() (bpfobj.LbBlockTable, error) {
	p, b, err := d.blocks()
	if err == nil && ahead(p, b) > p.Made {
		err = addPages(d.maps.BlockPages, d.maps.Pages, ahead(p, b), b.Taken)
	}
	return b, err
}

// blocks says which there are, and which are in use.
func (d *Director) blocks() (p bpfobj.LbPageTable, b bpfobj.LbBlockTable, err error) {
	if p, err = pagesOf(d.maps.Pages); err != nil {
		return p, b, err
	}
	if err = d.maps.Blocks.Lookup(uint32(0), &b); err != nil {
		err = fmt.Errorf("read the connection table: %w", err)
	}
	return p, b, err
}

// ahead is how many blocks in pages there are to be.
func ahead(p bpfobj.LbPageTable, b bpfobj.LbBlockTable) uint32 {
	return min(b.Taken+max(pagesAhead*pageBlocks, b.Taken/aheadShare), p.Bound)
}

// trim takes memory from a table that has become smaller, some at a time: how many blocks and pages it
// took.
func (d *Director) trim() (int, error) {
	p, b, err := d.blocks()
	if err != nil {
		return 0, err
	}
	used := b.Taken + b.Spare
	small := used <= pagesAhead*pageBlocks && p.Made <= 2*pagesAhead*pageBlocks
	if small || b.Free < used*blockEntries/2 && p.Made < 2*ahead(p, b) {
		return d.clearPages(&p)
	}
	if err := waitForPackets(d.maps.Barriers); err != nil {
		return 0, err
	}
	done, err := d.runTrim()
	if err != nil {
		return 0, err
	}
	n, err := d.takePages()
	return done + n, err
}

// runTrim has blocks given back: how many.
func (d *Director) runTrim() (int, error) {
	n, err := d.progs.TrimTable.Run(&ebpf.RunOptions{Data: make([]byte, 14)})
	if err != nil {
		return 0, fmt.Errorf("take memory from the connection table: %w", err)
	}
	return int(n), nil
}

// takePages takes pages away that are not wanted ahead any more: how many. Packets that still know of
// them have passed before it looks whether one was taken.
func (d *Director) takePages() (int, error) {
	p, b, err := d.blocks()
	if err != nil {
		return 0, err
	}
	if wanted := (ahead(p, b) + pageBlocks - 1) / pageBlocks * pageBlocks; p.Made >= wanted+pagesAhead*pageBlocks {
		p.Made = max(wanted, p.Made-min(p.Made, pagesTaken*pageBlocks))
		if err := d.lowerMade(&p); err != nil {
			return 0, fmt.Errorf("take memory from the connection table: %w", err)
		}
	}
	return d.clearPages(&p)
}

// clearPages takes the pages away that programs do not take any more: how many. It begins at the upper
// end, so that what is left if it is killed begins where these do.
func (d *Director) clearPages(p *bpfobj.LbPageTable) (int, error) {
	first := p.Made / pageBlocks
	end, err := d.pagesFrom(first, p.None)
	if err == nil && end > first {
		err = d.replacePages(p, first, end)
	}
	if err != nil {
		return 0, fmt.Errorf("take memory from the connection table: %w", err)
	}
	return int(end - first), nil
}

// lowerMade says that there are fewer pages, and raises that again if one of them was taken meanwhile.
func (d *Director) lowerMade(p *bpfobj.LbPageTable) error {
	if err := d.maps.Pages.Put(uint32(0), *p); err != nil {
		return err
	}
	if err := waitForPackets(d.maps.Barriers); err != nil {
		return err
	}
	_, b, err := d.blocks()
	if err != nil || b.Taken <= p.Made {
		return err
	}
	p.Made = (b.Taken + pageBlocks - 1) / pageBlocks * pageBlocks
	return d.maps.Pages.Put(uint32(0), *p)
}

// pagesFrom is the end of the pages from a number on.
func (d *Director) pagesFrom(first, none uint32) (end uint32, err error) {
	for end = first; end < d.maps.BlockPages.MaxEntries(); end++ {
		var id uint32
		err := d.maps.BlockPages.Lookup(end, &id)
		if errors.Is(err, ebpf.ErrKeyNotExist) || err == nil && id == none {
			break
		}
		if err != nil {
			return end, err
		}
	}
	return end, nil
}

// replacePages puts the empty page in place of others: the kernel waits for packets under way
// for many of them at once, but for each that it deletes.
func (d *Director) replacePages(p *bpfobj.LbPageTable, first, end uint32) error {
	none, err := ebpf.NewMapFromID(ebpf.MapID(p.None))
	if err != nil { // it stands for none
		if none, err = newPage(); err != nil {
			return err
		}
		info, err := none.Info()
		if err != nil {
			return errors.Join(err, none.Close())
		}
		id, _ := info.ID()
		p.None = uint32(id)
		if err := d.maps.Pages.Put(uint32(0), *p); err != nil {
			return errors.Join(err, none.Close())
		}
	}
	defer none.Close()
	for end > first {
		n := min(end-first, pagesAtOnce)
		if err := setPages(d.maps.BlockPages, end-n, slices.Repeat([]*ebpf.Map{none}, int(n))); err != nil {
			return err
		}
		end -= n
	}
	return nil
}

// pagesTaken are taken away at once, at most: meanwhile none is added.
const pagesTaken = 1024

// handleLife is for how long a provider uses a handle: the director may be replaced.
const handleLife = 10 * time.Second

// Intervals at which a provider looks: at the table, whose interval becomes longer while nothing
// happens there, and likewise whether memory can be taken away; after an error, and where there is no
// director.
const (
	provideInterval = 50 * time.Millisecond
	provideLongest  = 400 * time.Millisecond
	trimInterval    = time.Second
	trimLongest     = 16 * time.Second
	provideAgain    = time.Second
)

// Provide adds memory to the connection table of the network namespace's director ahead of need,
// until the context is done. One process does so at a time. It reports an error, and nil after some
// time without one: packets go on without.
func Provide(ctx context.Context, report func(error)) {
	for ctx.Err() == nil {
		// Of the network namespace, as the director is: another process cannot have it meanwhile.
		one, err := net.ListenPacket("unixgram", "@imbang/memory")
		if err != nil {
			wait(ctx, provideAgain)
			continue
		}
		provideAlone(ctx, report)
		one.Close()
	}
}

func provideAlone(ctx context.Context, report func(error)) {
	for ctx.Err() == nil {
		d, err := Open()
		if err == nil {
			err = d.provideFor(ctx, handleLife)
			d.Close()
		}
		if errors.Is(err, ErrNotLoaded) {
			report(nil)
		} else {
			report(err)
		}
		if err != nil {
			wait(ctx, provideAgain)
		}
	}
}

func (d *Director) provideFor(ctx context.Context, life time.Duration) error {
	interval, pause, trimmed := provideInterval, trimInterval, time.Now()
	var before bpfobj.LbBlockTable
	for end := time.Now().Add(life); time.Now().Before(end) && ctx.Err() == nil; wait(ctx, interval) {
		if !stillThere(d.lock) {
			return ErrNotLoaded
		}
		b, err := d.provide()
		if err != nil {
			return err
		}
		if interval = min(2*interval, provideLongest); b.Taken != before.Taken || b.Spare != before.Spare {
			interval = provideInterval
		}
		before = b
		if time.Since(trimmed) < pause {
			continue
		}
		n, err := d.trim()
		if err != nil {
			return err
		}
		if pause = min(2*pause, trimLongest); n > 0 {
			pause = trimInterval
		}
		if trimmed = time.Now(); n >= pagesTaken { // there is more
			trimmed = trimmed.Add(-pause)
		}
	}
	return nil
}

// wait waits, or until the context is done.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
