// SPDX-License-Identifier: Apache-2.0

package director

import (
	"hash/maphash"
	"unsafe"

	"imbang/internal/bpfobj"
)

// The auditor's picture of the timer entries of one family. It is made of maps
// that are read one after the other while packets change them, in this order:
//
//	clock, entries (1), connections, free lists (1), slots, entries (2), free lists (2), clock
//
// An entry has a number from 1; arrays by number hold what was read.

const (
	wheelSlots = 2048                 // WHEEL_SLOTS of bpf/types.h
	wheelReach = 32_000_000_000 >> 26 // WHEEL_REACH of bpf/wheel.h [ticks]
	entryFree  = 2                    // TIMER_ENTRY_FREE of bpf/types.h
	freeBlock  = 16                   // FREE_BLOCK of bpf/wheel.h
)

// entryBits is what is known of a timer entry.
type entryBits uint8

const (
	bookedFirst  entryBits = 1 << iota // in use, when entries were read first
	bookedSecond                       // and when they were read again
	freeSecond                         // then it was marked as free
	inSlot                             // found in a slot's list that does not change
	inMovingSlot                       // in one that may have
	inFreeList
)

type wheelView struct {
	family    uint8
	before    uint32   // the clock's tick when reading began
	after     uint32   // and when it ended
	fresh     []uint32 // of free lists, before entries were read first
	bits      []entryBits
	flow      []uint32 // hashes, of the last reading
	next      []uint32
	slot      []uint16 // 1 + the slot in which it was found
	nameFlow  []uint32 // of the connection that names it
	nameTick  []uint32
	firsts    []uint32 // of slots
	freeFirst []uint32 // of free lists, at their last reading
	freeQuiet []bool   // which were the same at both
}

// newWheelView makes room for entries with numbers up to n.
func newWheelView(family uint8, n uint32) *wheelView {
	n++
	return &wheelView{
		family: family, bits: make([]entryBits, n), flow: make([]uint32, n), next: make([]uint32, n),
		slot: make([]uint16, n), nameFlow: make([]uint32, n), nameTick: make([]uint32, n),
	}
}

func (w *wheelView) has(number uint32) bool { return number > 0 && int(number) < len(w.bits) }

// first notes an entry at the first reading.
func (w *wheelView) first(number uint32, flow uint32, free bool) {
	w.flow[number] = flow
	if !free {
		w.bits[number] |= bookedFirst
	}
}

// second notes it at the other one.
func (w *wheelView) second(number, next uint32, flow uint32, free bool) {
	if w.flow[number] != flow {
		w.bits[number] &^= bookedFirst // it is another's by now
	}
	w.flow[number], w.next[number] = flow, next
	if free {
		w.bits[number] |= freeSecond
	} else {
		w.bits[number] |= bookedSecond
	}
}

// name notes the connection that names an entry; false if one does already.
func (w *wheelView) name(number, flow, tick uint32) bool {
	if w.nameFlow[number] != 0 {
		return false
	}
	w.nameFlow[number], w.nameTick[number] = flow, tick
	return true
}

// moving reports whether a slot's list may have been taken while it was read.
func (w *wheelView) moving(slot uint32) bool {
	return w.after-w.before >= wheelSlots || (slot-w.before)%wheelSlots <= w.after-w.before
}

// due reports whether a tick came while entries were read.
func (w *wheelView) due(tick uint32) bool {
	return int32(tick-w.before) >= 0 && int32(w.after+1-tick) >= 0
}

// walk follows the lists and notes what is in them.
func (w *wheelView) walk(report func(suspect)) {
	for slot, first := range w.firsts {
		if !w.moving(uint32(slot)) {
			w.walkSlot(uint32(slot), first, report)
		}
	}
	for slot, first := range w.firsts {
		if !w.moving(uint32(slot)) {
			continue
		}
		for at := first; w.has(at) && w.bits[at]&(inSlot|inMovingSlot) == 0; at = w.next[at] {
			w.bits[at] |= inMovingSlot
		}
	}
	for list, first := range w.freeFirst {
		w.walkFree(uint32(list), first, report)
	}
}

// walkSlot follows a list that does not change: each entry is in this one alone,
// and in use.
func (w *wheelView) walkSlot(slot, first uint32, report func(suspect)) {
	before := uint32(0)
	for at := first; at != 0; before, at = at, w.next[at] {
		if !w.has(at) {
			report(suspect{kind: AuditLinkBroken, family: w.family, number: at, from: before, list: slot})
			return
		}
		if w.bits[at]&inSlot != 0 {
			report(suspect{kind: AuditEntryTwice, family: w.family, number: at, from: before, list: slot})
			return
		}
		w.bits[at] |= inSlot
		w.slot[at] = uint16(slot + 1)
		if w.bits[at]&freeSecond != 0 {
			report(suspect{kind: AuditEntryListedFree, family: w.family, number: at, from: before, list: slot})
		}
	}
}

// walkFree follows a list of free entries, which may change. It ends where an
// entry is in use: then the list is another one by now, and what was not found in
// it is not judged.
func (w *wheelView) walkFree(list, first uint32, report func(suspect)) {
	before := uint32(0)
	for at := first; at != 0; before, at = at, w.next[at] {
		switch {
		case !w.has(at):
			report(suspect{kind: AuditLinkBroken, family: w.family, number: at, from: before, list: list, free: true})
		case w.bits[at]&inSlot != 0:
			report(suspect{kind: AuditEntryListedFree, family: w.family, number: at, from: before, list: list, free: true})
		case w.bits[at]&freeSecond == 0 || w.bits[at]&inFreeList != 0:
		default:
			w.bits[at] |= inFreeList
			continue
		}
		w.freeQuiet[list] = false
		return
	}
}

// fires reports whether the wheel will come, or was just coming, to the timer
// entry that a connection names.
func (w *wheelView) fires(number, flow, tick uint32) bool {
	bits := w.bits[number]
	return w.flow[number] == flow && bits&bookedSecond != 0 && bits&(inSlot|inMovingSlot) != 0 || w.due(tick)
}

// judge reports what is wrong with entries. Those of connections without a timer
// entry are reported by number and tick: their flow is to be found.
func (w *wheelView) judge(report func(suspect)) {
	w.walk(report)
	for number := uint32(1); int(number) < len(w.bits); number++ {
		bits := w.bits[number]
		listed := bits&(inSlot|inMovingSlot) != 0
		own := w.nameFlow[number] == w.flow[number]
		isNamed := w.nameFlow[number] != 0
		if isNamed && !w.fires(number, w.nameFlow[number], w.nameTick[number]) {
			report(suspect{kind: AuditNoTimer, family: w.family, number: number, tick: w.nameTick[number]})
		}
		switch {
		case !w.taken(number) || listed || bits&inFreeList != 0:
		case bits&bookedFirst != 0 && bits&bookedSecond != 0 && !(isNamed && own):
			report(suspect{kind: AuditEntryLeaked, family: w.family, number: number, hash: uint64(w.flow[number]), a: int64(w.next[number])})
		case bits&freeSecond != 0 && w.freeQuiet[freeListOf(number)]:
			report(suspect{kind: AuditEntryLost, family: w.family, number: number, a: int64(w.next[number])})
		}
	}
}

// freeListOf is the free list that an entry belongs to: timer_entry_list of
// bpf/wheel.h.
func freeListOf(number uint32) uint32 { return (number - 1) / freeBlock % freeLists }

// taken reports whether an entry was ever taken when entries were read first.
func (w *wheelView) taken(number uint32) bool {
	block, at := (number-1)/freeBlock, (number-1)%freeBlock // timer_entry_number of bpf/wheel.h
	return block/freeLists*freeBlock+at < w.fresh[freeListOf(number)]
}

// freeLists is FREE_LISTS of bpf/types.h.
const freeLists = 16

// takenUpTo is the highest number that was ever taken of the lists.
func takenUpTo(lists []bpfobj.LbFreeTimerEntries, most uint32) (top uint32) {
	for i, l := range lists {
		if l.Fresh > 0 {
			n := l.Fresh - 1 // timer_entry_number of bpf/wheel.h
			top = max(top, 1+(n/freeBlock*freeLists+uint32(i))*freeBlock+n%freeBlock)
		}
	}
	return min(top, most)
}

var auditSeed = maphash.MakeSeed()

// keyHash identifies a flow or a call within this process: the seed is random.
func keyHash[K bpfobj.LbFlow | bpfobj.LbCall](k *K) uint64 {
	return maphash.Bytes(auditSeed, unsafe.Slice((*byte)(unsafe.Pointer(k)), unsafe.Sizeof(*k)))
}

// entryHash is keyHash as it is kept for each timer entry; never 0, which is no
// connection.
func entryHash(f *bpfobj.LbFlow) uint32 { return max(1, uint32(keyHash(f))) }

// timerNumber is the number of a connection's timer entry: what lies above it is what
// backups know (bpf/told.h).
func timerNumber(c *bpfobj.LbConn6) uint32 { return c.Number & timerNumbers }

// Timer entries have numbers below those bits: there are three for two connections.
const (
	timerNumbers = 1<<28 - 1 // TIMER_NUMBER of bpf/types.h
	_            = uint(timerNumbers - 3*MaxConnections)
)

// tickOf is the tick of a connection's timer entry, of which the connection has the low
// bits.
func (p *auditPass) tickOf(c *bpfobj.LbConn6) uint32 {
	return p.clock + uint32(int32(int16(c.Due-uint16(p.clock))))
}
