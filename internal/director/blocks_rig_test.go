// SPDX-License-Identifier: Apache-2.0

package director

import (
	"context"
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// What tests read of the connection table's memory, and how they damage it. poke and change damage
// it beside programs that run, changeBlock only where none changes the same block.

// conns counts the connections and templates, of both families or of one: also the dead ones, and
// those whose time is over.
func (r *rig) conns(families ...model.Family) (n int) {
	r.Helper()
	for _, e := range r.allEntries() {
		if len(families) == 0 || slices.Contains(families, model.Family(e.Flow.Family)) {
			n++
		}
	}
	return n
}

// allEntries copies them.
func (r *rig) allEntries() (all []entry) {
	r.Helper()
	r.must(r.eachEntry(context.Background(), 0, func(e *entry) error {
		all = append(all, *e)
		return nil
	}))
	return all
}

// replies are the entries of connections' replies, of both families or of one.
func (r *rig) replies(families ...model.Family) (all []entry) {
	r.Helper()
	for _, b := range r.allBlocks() {
		r.must(b.entries(func(e *entry) error {
			if e.ofReplies() && (len(families) == 0 || slices.Contains(families, model.Family(e.Flow.Family))) {
				all = append(all, *e)
			}
			return nil
		}))
	}
	return all
}

// hairpins counts the hairpins that have an entry of their replies.
func (r *rig) hairpins() (n int) {
	r.Helper()
	for _, e := range r.allEntries() {
		if e.Flags&connHairpin == 0 {
			continue
		}
		replies, err := r.repliesOf(&e)
		r.must(err)
		if replies != nil {
			n++
		}
	}
	return n
}

// conn is the entry that a client's packet belongs to, as packets find it.
func (r *rig) conn(p testenv.Packet) entry {
	r.Helper()
	e, err := r.connOf(fromFlow4(flowOf(p)))
	r.must(err)
	if e == nil {
		r.Fatalf("no entry of %s", flowText(fromFlow4(flowOf(p))))
	}
	return *e
}

// changeBlock changes a block.
func (r *rig) changeBlock(number uint32, change func(*block)) {
	r.Helper()
	outer, at := r.maps.SpareBlocks, number
	if number < spareFirst {
		var page *ebpf.Map
		r.must(r.maps.BlockPages.Lookup(number/pageBlocks, &page))
		defer page.Close()
		outer, at = page, number%pageBlocks
	}
	value, err := outer.LookupBytes(at)
	r.must(err)
	if value == nil {
		r.Fatalf("there is no block %d", number)
	}
	shift := 0
	if number < spareFirst {
		p, err := pagesOf(r.maps.Pages)
		r.must(err)
		shift = int(p.Shift)
	}
	change(&block{number, value[shift : shift+blockLines*lineBytes]})
	r.must(outer.Put(at, value))
}

// changeConn changes the fields of an entry.
func (r *rig) changeConn(index uint32, change func(*bpfobj.LbConn)) {
	r.Helper()
	r.changeBlock(index/indexLines, func(b *block) { change(b.conn(index % indexLines)) })
}

// bucketOfEntry is the number of the bucket that an entry belongs to, and a copy of its words.
func (r *rig) bucketOfEntry(e *entry) (n uint32, words [lineBytes / 4]uint32) {
	r.Helper()
	b, err := r.newBucketReader()
	r.must(err)
	n = b.bucketOf(uint32(hashFlow(&b.secret, &e.Flow)))
	line, err := b.bucket(n)
	r.must(err)
	if line == nil {
		r.Fatalf("there is no bucket %d", n)
	}
	return n, *line
}

// slotOf is the slot of an entry in its bucket; 0 if it has none.
func slotOf(words [lineBytes / 4]uint32, index uint32) int {
	for slot := 1; slot <= bucketSlots; slot++ {
		if words[slot]&indexMask == index {
			return slot
		}
	}
	return 0
}

// inTable are the entries in use of a family, or with 0 of both: of connections and templates,
// also of those that are dead or over.
func (r *rig) inTable(f model.Family) (all []entry) {
	r.Helper()
	r.must(r.eachEntry(context.Background(), f, func(e *entry) error {
		all = append(all, *e)
		return nil
	}))
	return all
}

// tableEntries is how many they are.
func (r *rig) tableEntries(f model.Family) int {
	r.Helper()
	return len(r.inTable(f))
}

// entryOf is the entry of a client's flow, as its bucket leads to it; the test fails if there is none.
func (r *rig) entryOf(flow bpfobj.LbFlow) entry {
	r.Helper()
	e, err := r.connOf(flow)
	r.must(err)
	if e == nil {
		r.Fatalf("no entry of %s", flowText(flow))
	}
	return *e
}

// blockOf copies a block.
func (r *rig) blockOf(number uint32) *block {
	r.Helper()
	reader, err := r.newBlockReader()
	r.must(err)
	b, err := reader.read(number)
	r.must(err)
	if b == nil {
		r.Fatalf("no block %d", number)
	}
	return &block{number, slices.Clone(b.lines)}
}

// allBlocks copies all blocks that are, or were, in use.
func (r *rig) allBlocks() (all []*block) {
	r.Helper()
	reader, err := r.newBlockReader()
	r.must(err)
	r.must(reader.eachBlock(context.Background(), func(b *block) error {
		all = append(all, &block{b.number, slices.Clone(b.lines)})
		return nil
	}))
	return all
}

// buckets is how many buckets there are.
func (r *rig) buckets() uint32 {
	r.Helper()
	reader, err := r.newBucketReader()
	r.must(err)
	return reader.buckets()
}

// bucketLine copies a bucket.
func (r *rig) bucketLine(n uint32) [lineBytes / 4]uint32 {
	r.Helper()
	reader, err := r.newBucketReader()
	r.must(err)
	line, err := reader.bucket(n)
	r.must(err)
	if line == nil {
		r.Fatalf("no bucket %d", n)
	}
	return *line
}

// bucketOf is the bucket of a flow.
func (r *rig) bucketOf(flow bpfobj.LbFlow) uint32 {
	r.Helper()
	reader, err := r.newBucketReader()
	r.must(err)
	return reader.bucketOf(uint32(hashFlow(&reader.secret, &flow)))
}

// clientsOfOneBucket are clients whose connections to a service of TCP are all of one bucket, as long
// as there are at most 256.
func (r *rig) clientsOfOneBucket(count int, service string) (clients []string) {
	r.Helper()
	reader, err := r.newBucketReader()
	r.must(err)
	var first uint64
	for i := 0; len(clients) < count; i++ {
		flow := fromFlow4(flowOf(testenv.TCP(nthClient(i), service, "S")))
		hash := hashFlow(&reader.secret, &flow)
		if i == 0 {
			first = hash
		}
		if (hash^first)&0xff == 0 {
			clients = append(clients, nthClient(i))
		}
	}
	return clients
}

// spot is a place in the connection table's memory: a block, and bytes from its head on.
type spot struct{ block, at uint32 }

// entrySpot is a field of an entry, by its offset in bpfobj.LbConn.
func entrySpot(index uint32, field uintptr) spot {
	return spot{index & indexMask / indexLines, index%indexLines*lineBytes + uint32(field)}
}

// freeSpot is a block's word of free lines.
func freeSpot(number uint32) spot {
	return spot{number, uint32(unsafe.Offsetof(bpfobj.LbBlockHead{}.Free))}
}

// bucketSpot is a word of a bucket: 0 the control word, then the slots, then the chain.
func (r *rig) bucketSpot(n, word uint32) spot {
	r.Helper()
	var number uint32
	r.must(r.maps.BucketBlocks.Lookup(n/blockEntries, &number))
	if number == 0 {
		r.Fatalf("no bucket %d", n)
	}
	return spot{number - 1, (1+n%blockEntries)*lineBytes + 4*word}
}

// poke writes a value by one store, as programs do: a process would write a whole block, and with it
// what packets have changed meanwhile.
func (r *rig) poke(at spot, size asm.Size, value uint64) {
	r.Helper()
	r.damage(at, func(offset int16) asm.Instruction { return asm.StoreMem(asm.R0, offset, asm.R2, size) }, value)
}

// change changes a value by an atomic operation.
func (r *rig) change(at spot, op asm.AtomicOp, size asm.Size, value uint64) {
	r.Helper()
	r.damage(at, func(offset int16) asm.Instruction {
		ins := op.Mem(asm.R0, asm.R2, size, offset)
		ins.Constant = int64(op >> 8) // which the library leaves 0: an addition
		return ins
	}, value)
}

// setFree lets a line count as free, or as taken, which it did not before.
func (r *rig) setFree(index uint32, free bool) {
	r.Helper()
	number, bit := index&indexMask/indexLines, uint64(1)<<(index%indexLines)
	if (r.blockOf(number).free()&bit != 0) == free {
		r.Fatalf("line %d counts as free: %t, as it did before", index, free)
	}
	if free {
		r.change(freeSpot(number), asm.OrAtomic, asm.DWord, bit)
	} else {
		r.change(freeSpot(number), asm.AndAtomic, asm.DWord, ^bit)
	}
}

// damage runs a program that finds a place (R0 has its map element) and does one thing there, with the value in R2.
func (r *rig) damage(at spot, store func(offset int16) asm.Instruction, value uint64) {
	r.Helper()
	lookup := func(key uint32) asm.Instructions {
		return asm.Instructions{
			asm.StoreImm(asm.RFP, -4, int64(key), asm.Word),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "none"),
		}
	}
	offset := at.at
	var code asm.Instructions
	if at.block >= spareFirst {
		code = append(asm.Instructions{asm.LoadMapPtr(asm.R1, r.maps.SpareBlocks.FD())}, lookup(at.block)...)
	} else {
		p, err := pagesOf(r.maps.Pages)
		r.must(err)
		offset += p.Shift
		code = append(asm.Instructions{asm.LoadMapPtr(asm.R1, r.maps.BlockPages.FD())}, lookup(at.block/pageBlocks)...)
		code = append(append(code, asm.Mov.Reg(asm.R1, asm.R0)), lookup(at.block%pageBlocks)...)
	}
	code = append(code,
		asm.LoadImm(asm.R2, int64(value), asm.DWord),
		store(int16(offset)),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
		asm.Mov.Imm(asm.R0, 1).WithSymbol("none"),
		asm.Return(),
	)
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "damage", Type: ebpf.SchedCLS, Instructions: code, License: "GPL"})
	r.must(err)
	defer program.Close()
	rc, err := program.Run(&ebpf.RunOptions{Data: make([]byte, 14)})
	r.must(err)
	if rc != 0 {
		r.Fatalf("no block %d", at.block)
	}
}

// Of bpfobj.LbConn.
var (
	fieldExpires = unsafe.Offsetof(bpfobj.LbConn{}.Expires)
	fieldFlags   = unsafe.Offsetof(bpfobj.LbConn{}.Flags)
	fieldServer  = unsafe.Offsetof(bpfobj.LbConn{}.Server)
	fieldNamed   = unsafe.Offsetof(bpfobj.LbConn{}.Fwmark) // of replies: their connection's incarnation
	fieldIndex   = unsafe.Offsetof(bpfobj.LbConn{}.Index)
	fieldHash    = unsafe.Offsetof(bpfobj.LbConn{}.Hash)
	fieldNext    = unsafe.Offsetof(bpfobj.LbConn{}.Next)
)

// kill makes an entry dead, as a program would that ended before it removed it.
func (r *rig) kill(e entry) {
	r.Helper()
	r.poke(entrySpot(e.Index, fieldFlags), asm.Byte, uint64(e.Flags|connDead))
	r.poke(entrySpot(e.Index, fieldExpires), asm.DWord, deadTime|e.Expires&(deadTime-1))
}

// unreach takes an entry out of its bucket, and leaves it in its line: no packet finds it any more.
func (r *rig) unreach(e *entry) {
	r.Helper()
	n, words := r.bucketOfEntry(e)
	slot := slotOf(words, e.Index)
	if slot == 0 {
		r.Fatalf("%s is in no slot of bucket %d", flowText(e.Flow), n)
	}
	r.poke(r.bucketSpot(n, uint32(slot)), asm.Word, 0)
}

// claim claims a bucket as a program would that never leaves it.
func (r *rig) claim(n uint32) {
	r.Helper()
	if r.bucketLine(n)[0]&bucketClaimed != 0 {
		r.Fatalf("bucket %d is claimed", n)
	}
	r.change(r.bucketSpot(n, 0), asm.OrAtomic, asm.Word, bucketClaimed)
}

// linesInUse counts the lines of entries that are not free, of all blocks that hold entries: what
// is in use, and what leaks.
func (r *rig) linesInUse() (n int) {
	r.Helper()
	for _, b := range r.allBlocks() {
		by := step(b.kind())
		for line := by; by != 0 && line+by <= blockLines; line += by {
			n += bits.OnesCount64(^b.free() >> line & 1)
		}
	}
	return n
}

// sweeps is how often the sweep came by all blocks.
func (r *rig) sweeps() uint32 {
	r.Helper()
	value, err := r.maps.Clocks.LookupBytes(uint32(0))
	r.must(err)
	const passes = 16 + 8 // of struct clock: behind the timer, the tick and the cursor
	return binary.NativeEndian.Uint32(value[passes:])
}

// removeConns removes all entries, without their servers' counts.
func (r *rig) removeConns() {
	r.Helper()
	for _, e := range r.inTable(0) {
		r.must(r.removeConn(&e))
	}
}

// removeConn likewise removes one. Any goroutine may call it.
func (d *Director) removeConn(e *entry) error {
	did, err := d.removeEntry(&bpfobj.LbRepair{Flow: e.Flow, Number: e.Index, Server: e.Server, Expires: incarnation(&e.LbConn)})
	if err == nil && did != repairDone {
		err = errors.New(did)
	}
	return err
}
