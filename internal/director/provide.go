// SPDX-License-Identifier: Apache-2.0

package director

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	// trimInterval is how often it looks whether the table has become smaller.
	trimInterval = time.Second
	// provideInterval is how often a provider looks.
	provideInterval = 50 * time.Millisecond
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
		bound = uint32(min(limit/memoryShare/pageBytes*pageBlocks, spareFirst))
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
	return addPages(maps["block_pages"], pages, min(bound, pagesAhead*pageBlocks))
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

// addPages makes pages until there are so many blocks in them.
func addPages(outer, pages *ebpf.Map, blocks uint32) error {
	p, err := pagesOf(pages)
	if err != nil {
		return err
	}
	for end := min((blocks+pageBlocks-1)/pageBlocks, spareFirst/pageBlocks); p.Made/pageBlocks < end; {
		first := p.Made / pageBlocks
		n := min(end-first, pagesAtOnce)
		numbers := make([]uint32, n)
		for i := range n {
			numbers[i] = first + i
		}
		if err := putPages(outer, numbers, newPage); err != nil {
			return fmt.Errorf("add memory to the connection table: %w", err)
		}
		p.Made += n * pageBlocks
		if err := pages.Put(uint32(0), p); err != nil {
			return fmt.Errorf("add memory to the connection table: %w", err)
		}
	}
	return nil
}

// putPages makes pages of these numbers.
func putPages(outer *ebpf.Map, numbers []uint32, newPage func() (*ebpf.Map, error)) error {
	var made []*ebpf.Map
	defer func() {
		for _, m := range made {
			m.Close()
		}
	}()
	descriptors := make([]uint32, len(numbers))
	for i := range numbers {
		m, err := newPage()
		if err != nil {
			return err
		}
		made = append(made, m)
		descriptors[i] = uint32(m.FD())
	}
	_, err := outer.BatchUpdate(numbers, descriptors, nil)
	if !errors.Is(err, ebpf.ErrNotSupported) {
		return err
	}
	for i, m := range made {
		if err := outer.Put(numbers[i], m); err != nil {
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

// provide adds the pages that the table needs soon.
func (d *Director) provide() error {
	p, b, err := d.blocks()
	if err != nil {
		return err
	}
	if want := ahead(p, b); want > p.Made {
		return addPages(d.maps.BlockPages, d.maps.Pages, want)
	}
	return nil
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
	want := b.Taken + max(pagesAhead*pageBlocks, b.Taken/aheadShare)
	if b.Spare > 0 {
		want = max(want, p.Made+pagesAhead*pageBlocks)
	}
	return min(want, p.Bound)
}

// trim takes memory from a table that has become smaller. Blocks of buckets are given back only if
// no packet is under way that may have found them in use.
func (d *Director) trim() error {
	p, b, err := d.blocks()
	if err != nil {
		return err
	}
	used := b.Taken + b.Spare
	small := used <= pagesAhead*pageBlocks && p.Made <= 2*pagesAhead*pageBlocks
	if small || b.Free < used*blockEntries/2 && p.Made < 2*ahead(p, b) {
		return nil
	}
	var s bpfobj.LbShapeTable
	if err := d.maps.Shape.Lookup(uint32(0), &s); err != nil {
		return fmt.Errorf("read the connection table: %w", err)
	}
	if err := waitForPackets(d.maps.Barriers); err != nil {
		return err
	}
	unused := uint32(s.Geometry)
	if _, err := d.progs.TrimTable.Run(&ebpf.RunOptions{Data: frameOf(&unused)}); err != nil {
		return fmt.Errorf("take memory from the connection table: %w", err)
	}
	return d.takePages()
}

// takePages takes the pages away that are not wanted ahead any more. Packets that still know of them
// have passed before it looks whether one was taken.
func (d *Director) takePages() error {
	p, b, err := d.blocks()
	if err != nil {
		return err
	}
	made := (ahead(p, b) + pageBlocks - 1) / pageBlocks * pageBlocks
	if p.Made < made+pagesAhead*pageBlocks {
		return nil
	}
	was := p.Made
	p.Made = made
	if err := d.maps.Pages.Put(uint32(0), p); err != nil {
		return fmt.Errorf("take memory from the connection table: %w", err)
	}
	if err := waitForPackets(d.maps.Barriers); err != nil {
		return err
	}
	if _, b, err = d.blocks(); err != nil {
		return err
	}
	if b.Taken > p.Made {
		p.Made = (b.Taken + pageBlocks - 1) / pageBlocks * pageBlocks
		if err := d.maps.Pages.Put(uint32(0), p); err != nil {
			return fmt.Errorf("take memory from the connection table: %w", err)
		}
	}
	for page := p.Made / pageBlocks; page < was/pageBlocks; page++ {
		if err := d.maps.BlockPages.Delete(page); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("take memory from the connection table: %w", err)
		}
	}
	return nil
}

// handleLife is for how long a provider uses a handle: the director may be replaced.
const handleLife = 10 * time.Second

// Provide adds memory to the connection table of the network namespace's director ahead of need,
// until the context is done. One process does so. It reports an error, and nil after some time without
// one: packets go on without.
func Provide(ctx context.Context, report func(error)) {
	for ctx.Err() == nil {
		d, err := Open()
		if err == nil {
			err = d.provideFor(ctx, handleLife)
			d.Close()
		}
		if !errors.Is(err, ErrNotLoaded) {
			report(err)
		}
		wait(ctx, provideInterval)
	}
}

func (d *Director) provideFor(ctx context.Context, life time.Duration) error {
	trimmed := time.Now()
	for end := time.Now().Add(life); time.Now().Before(end) && ctx.Err() == nil; wait(ctx, provideInterval) {
		err := d.provide()
		if err == nil && time.Since(trimmed) >= trimInterval {
			err, trimmed = d.trim(), time.Now()
		}
		if err != nil {
			return err
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
