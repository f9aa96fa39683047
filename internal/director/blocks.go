// SPDX-License-Identifier: Apache-2.0

package director

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// The connection table's memory as a process reads it: bpf/table says how it is made.

// Of bpf/types.h.
const (
	lineBytes    = 64
	blockLines   = 62
	blockEntries = blockLines - 1
	pageBlocks   = 8
	indexLines   = 64
	indexMask    = 1<<24 - 1
	maxBlocks    = 1 << 18
	spareFirst   = maxBlocks / 2
	unowned      = 1
	deadTime     = 1 << 16 // DEAD_TIME of bpf/table/entry.h
)

// entry is one of the connection table: its fields, and its flow.
type entry struct {
	bpfobj.LbConn
	Flow bpfobj.LbFlow
}

// block is one as it was read.
type block struct {
	number uint32
	lines  []byte // from its head on
}

func (b *block) kind() bpfobj.LbBlockKind {
	return bpfobj.LbBlockKind(b.word(unsafe.Offsetof(bpfobj.LbBlockHead{}.Kind)))
}

func (b *block) word(at uintptr) uint32 { return binary.NativeEndian.Uint32(b.lines[at:]) }

// free are its free lines, a bit each.
func (b *block) free() uint64 {
	return binary.NativeEndian.Uint64(b.lines[unsafe.Offsetof(bpfobj.LbBlockHead{}.Free):])
}

// step is how many lines an entry of such a block takes; 0: it has none.
func step(kind bpfobj.LbBlockKind) uint32 {
	switch kind {
	case bpfobj.LbBlockKindBLOCK_ENTRIES4:
		return 1
	case bpfobj.LbBlockKindBLOCK_ENTRIES6:
		return 2
	}
	return 0
}

// conn is the entry of a line.
func (b *block) conn(line uint32) *bpfobj.LbConn {
	return (*bpfobj.LbConn)(unsafe.Pointer(&b.lines[line*lineBytes]))
}

// entry copies the entry of a line, with its flow in the shape that both families share.
func (b *block) entry(line uint32) entry {
	e := entry{LbConn: *b.conn(line)}
	behind := unsafe.Pointer(&b.lines[line*lineBytes+uint32(unsafe.Sizeof(e.LbConn))])
	if b.kind() == bpfobj.LbBlockKindBLOCK_ENTRIES6 {
		e.Flow = *(*bpfobj.LbFlow)(behind)
	} else {
		e.Flow = fromFlow4(*(*bpfobj.LbFlow4)(behind))
	}
	return e
}

// bucket is the words of a line of buckets.
func (b *block) bucket(line uint32) *[lineBytes / 4]uint32 {
	return (*[lineBytes / 4]uint32)(unsafe.Pointer(&b.lines[line*lineBytes]))
}

// inUse reports whether an entry is in use: alive, dead, or over. Its line is free otherwise, or
// a program writes it.
func inUse(c *bpfobj.LbConn) bool { return c.Expires >= deadTime }

// blockReader reads blocks.
type blockReader struct {
	maps  *bpfobj.Tables
	shift uint32
	page  []byte // all its blocks; of the hash, as many
	at    uint32 // number of the page
	here  bool   // it is there
}

func (d *Director) newBlockReader() (*blockReader, error) { return readerOf(&d.maps) }

func readerOf(maps *bpfobj.Tables) (*blockReader, error) {
	r := &blockReader{maps: maps, at: ^uint32(0)}
	p, err := pagesOf(maps.Pages)
	r.shift = p.Shift
	return r, err
}

// ranges are how many blocks in pages and in the hash are, or were, in use.
func (r *blockReader) ranges() (taken, spare uint32, err error) {
	var b bpfobj.LbBlockTable
	if err := r.maps.Blocks.Lookup(uint32(0), &b); err != nil {
		return 0, 0, fmt.Errorf("read the connection table: %w", err)
	}
	return b.Taken, b.Spare, nil
}

// read reads a block; nil if there is none. It is valid until the next one is read.
func (r *blockReader) read(number uint32) (*block, error) {
	if page := number / pageBlocks; page != r.at {
		if err := r.readPage(page); err != nil {
			return nil, err
		}
	}
	if !r.here {
		return nil, nil
	}
	size := len(r.page) / pageBlocks
	at := int(number%pageBlocks) * size
	if number < spareFirst {
		at += int(r.shift)
	}
	return &block{number, r.page[at : at+blockLines*lineBytes]}, nil
}

func readConnections(err error) error {
	if err == nil || errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return fmt.Errorf("read connections: %w", err)
}

// readPage reads all blocks of a page, or as many of the hash.
func (r *blockReader) readPage(page uint32) error {
	r.at, r.here = page, false
	from, first := r.maps.SpareBlocks, page*pageBlocks
	if page < spareFirst/pageBlocks {
		from, first = nil, 0
		err := r.maps.BlockPages.Lookup(page, &from)
		if errors.Is(err, unix.ENOENT) { // it was taken away between its number and itself
			return nil
		}
		if err != nil {
			return readConnections(err)
		}
		defer from.Close()
	}
	size := from.ValueSize()
	if r.page == nil {
		r.page = make([]byte, pageBlocks*size)
	}
	for i := range uint32(pageBlocks) {
		lines := r.page[i*size : (i+1)*size]
		if err := from.Lookup(first+i, lines); errors.Is(err, ebpf.ErrKeyNotExist) {
			clear(lines)
		} else if err != nil {
			return readConnections(err)
		}
	}
	r.here = true
	return nil
}

// eachBlock calls for each block that is, or was, in use.
func (r *blockReader) eachBlock(ctx context.Context, call func(*block) error) error {
	taken, spare, err := r.ranges()
	if err != nil {
		return err
	}
	for i := range taken + spare {
		if err := ctx.Err(); err != nil {
			return err
		}
		number := i
		if i >= taken {
			number = spareFirst + i - taken
		}
		b, err := r.read(number)
		if err != nil {
			return err
		}
		if b == nil {
			continue
		}
		if err := call(b); err != nil {
			return err
		}
	}
	return nil
}

// entries yields the entries of a block that are in use, each in the same memory.
func (b *block) entries(call func(*entry) error) error {
	by := step(b.kind())
	if by == 0 {
		return nil
	}
	free := b.free()
	var e entry
	for line := by; line+by <= blockLines; line += by {
		if free>>line&1 != 0 || !inUse(b.conn(line)) {
			continue
		}
		e = b.entry(line)
		if err := call(&e); err != nil {
			return err
		}
	}
	return nil
}

// eachEntry calls for all entries of a family, or with family 0 of both, that are in use.
func (d *Director) eachEntry(ctx context.Context, family model.Family, call func(*entry) error) error {
	r, err := d.newBlockReader()
	if err != nil {
		return err
	}
	return r.eachBlock(ctx, func(b *block) error {
		six := b.kind() == bpfobj.LbBlockKindBLOCK_ENTRIES6
		if family != 0 && six != (family == model.IPv6) {
			return nil
		}
		return b.entries(call)
	})
}
