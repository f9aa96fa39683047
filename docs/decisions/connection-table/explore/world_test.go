// SPDX-License-Identifier: Apache-2.0

// Package explore runs the protocol of the table of pages (../prototypes/bpf/pages.bpf.c) in every
// order of its loads, stores and atomics that x86 allows, on a table of two buckets.
//
// A CPU's stores wait in a buffer and reach memory later, in their order; the CPU itself sees
// them at once; an atomic operation waits until the buffer is empty (x86-TSO).
package explore

const (
	cpus    = 3
	slots   = 2 // of a bucket, at most
	entries = 3
	flows   = 5 // from 1 on
	waiting = 6 // stores, at most: fewer orders, none that needs more
)

// Addresses.
const (
	geometry = 0 // the number of buckets: 1 or 2
	free     = 1 // a bit for each entry
	bucket0  = 2 // control, then slots, then the chain
	entry0   = bucket0 + 2*(2+slots)
	cells    = entry0 + entries*fields
)

// Fields of an entry.
const (
	expires = iota // dead, abandoned, due or live; and the incarnation
	flow           // whose it is
	content        // what else a connection has: here its flow once more
	link           // in a chain: the next entry
	fields
)

// Values of expires, in its two low bits.
const (
	dead      = iota
	abandoned // ended, and still in its bucket
	due
	live
	life = 3
	// The incarnation, which counts up with each opening.
	incarnation = 4
)

const claimed = 0x80 // of a bucket's control

func control(b uint8) uint8      { return bucket0 + b*(2+slots) }
func slot(b, i uint8) uint8      { return bucket0 + b*(2+slots) + 1 + i }
func chain(b uint8) uint8        { return bucket0 + b*(2+slots) + 1 + slots }
func entry(n, field uint8) uint8 { return entry0 + (n-1)*fields + field }

// moves says whether a flow belongs to the second of two buckets.
func moves(f uint8) bool { return f%2 != 0 }

func bucketOf(f, buckets uint8) uint8 {
	if buckets == 2 && moves(f) {
		return 1
	}
	return 0
}

type store struct{ at, value uint8 }

// A cpu runs one program.
type cpu struct {
	program uint8
	pc      uint8
	over    bool
	result  uint8
	r       [10]uint8
	buffer  [waiting]store
	stored  uint8
}

// A world is a state of the memory and of all CPUs.
type world struct {
	memory [cells]uint8
	cpu    [cpus]cpu
	// Of each flow: connections that were opened and ended, those from the beginning included.
	opened, ended [flows]uint8
	width         uint8 // slots of a bucket that are used
	mistaken      bool  // a command has ended another flow than the one it was for
}

// A step is one access to memory by one CPU.
type step struct {
	w       *world
	c       *cpu
	fault   fault
	blocked bool // it waits for its stores
}

func (s *step) load(at uint8) uint8 {
	for i := int(s.c.stored) - 1; i >= 0; i-- {
		if s.c.buffer[i].at == at {
			return s.c.buffer[i].value
		}
	}
	return s.w.memory[at]
}

func (s *step) put(at, value uint8) bool {
	if s.c.stored == waiting {
		s.blocked = true
		return false
	}
	s.c.buffer[s.c.stored] = store{at, value}
	s.c.stored++
	return true
}

// atomic changes a cell if its buffer is empty, and returns what was there.
func (s *step) atomic(at uint8, change func(uint8) uint8) (was uint8, done bool) {
	if s.c.stored != 0 {
		s.blocked = true
		return 0, false
	}
	was = s.w.memory[at]
	s.w.memory[at] = change(was)
	return was, true
}

// swap is compare-and-swap. While the CPU is blocked, done is false.
func (s *step) swap(at, old, value uint8) (swapped, done bool) {
	was, done := s.atomic(at, func(was uint8) uint8 {
		if was == old {
			return value
		}
		return was
	})
	return done && was == old, done
}

// flush has the oldest store of a CPU reach memory.
func (w *world) flush(n int) {
	c := &w.cpu[n]
	w.memory[c.buffer[0].at] = c.buffer[0].value
	copy(c.buffer[:], c.buffer[1:c.stored])
	c.stored--
	c.buffer[c.stored] = store{}
}

// successors are all states that follow.
func (w *world) successors(f fault, visit func(world)) {
	for n := range cpus {
		if !w.cpu[n].over {
			next := *w
			s := step{w: &next, c: &next.cpu[n], fault: f}
			programs[next.cpu[n].program](&s)
			if !s.blocked {
				visit(next)
			}
		}
		if w.cpu[n].stored > 0 {
			next := *w
			next.flush(n)
			visit(next)
		}
	}
}
