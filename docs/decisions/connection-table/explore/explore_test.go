// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"errors"
	"fmt"
	"hash/maphash"
	"testing"
)

// A scenario is a table and what three CPUs do with it.
type scenario struct {
	name    string
	buckets uint8
	narrow  bool // buckets have one slot; further entries are chained
	// Entries of the beginning: flow, and live or due.
	begin [][2]uint8
	run   [cpus]task
	// found: a reader's flow lives all the time. absent: it never does. once: exactly one CPU
	// opens, if there is room.
	found, absent, once bool
}

// A task is a program and its flow, or its entry.
type task struct{ program, of uint8 }

var scenarios = []scenario{
	{name: "two open one flow", buckets: 1, run: [cpus]task{{opener, 1}, {opener, 1}}, once: true},
	{name: "two open one flow beside a split", buckets: 1, run: [cpus]task{{opener, 1}, {opener, 1}, {splitter, 0}}, once: true},
	{name: "two open two flows beside a split", buckets: 1, run: [cpus]task{{opener, 1}, {opener, 2}, {splitter, 0}}},
	{name: "a reader beside a split", buckets: 1, begin: [][2]uint8{{1, live}}, run: [cpus]task{{reader, 1}, {splitter, 0}, {opener, 2}}, found: true},
	{name: "a reader of nothing beside a split", buckets: 1, begin: [][2]uint8{{1, live}}, run: [cpus]task{{reader, 3}, {splitter, 0}, {opener, 2}}, absent: true},
	{name: "an end and an opening beside a split", buckets: 1, begin: [][2]uint8{{1, due}}, run: [cpus]task{{ender, 1}, {opener, 1}, {splitter, 0}}},
	{name: "an end beside a split", buckets: 1, begin: [][2]uint8{{1, live}, {3, live}}, run: [cpus]task{{killer, 1}, {reader, 3}, {splitter, 0}}, found: true},
	{name: "an entry used again under a reader", buckets: 1, begin: [][2]uint8{{1, live}}, run: [cpus]task{{killer, 1}, {opener, 2}, {reader, 1}}},
	{name: "an entry used again under a reader, two buckets", buckets: 2, begin: [][2]uint8{{1, live}}, run: [cpus]task{{killer, 1}, {opener, 2}, {reader, 1}}},
	{name: "a full bucket", buckets: 1, begin: [][2]uint8{{1, due}, {2, live}}, run: [cpus]task{{ender, 1}, {opener, 3}, {reader, 2}}, found: true},
	{name: "two ends and an opening", buckets: 1, begin: [][2]uint8{{1, due}}, run: [cpus]task{{ender, 1}, {killer, 1}, {opener, 1}}},
	{name: "an end that is given up, and the sweep", buckets: 1, begin: [][2]uint8{{1, live}}, run: [cpus]task{{killer, 1}, {ender, 1}, {opener, 3}}},
	{name: "a command that is late", buckets: 1, begin: [][2]uint8{{1, due}}, run: [cpus]task{{ender, 1}, {killer, 1}, {opener, 2}}},
	{name: "two openings and an end", buckets: 1, begin: [][2]uint8{{1, due}}, run: [cpus]task{{opener, 1}, {opener, 1}, {ender, 1}}},
	{name: "an entry becomes due", buckets: 1, begin: [][2]uint8{{1, live}}, run: [cpus]task{{clock, 1}, {ender, 1}, {opener, 1}}},
	{name: "a reader beside a merge", buckets: 2, begin: [][2]uint8{{1, live}}, run: [cpus]task{{reader, 1}, {merger, 0}, {opener, 2}}, found: true},
	{name: "two open one flow beside a merge", buckets: 2, run: [cpus]task{{opener, 1}, {opener, 1}, {merger, 0}}, once: true},
	{name: "an end and an opening beside a merge", buckets: 2, begin: [][2]uint8{{1, due}}, run: [cpus]task{{ender, 1}, {opener, 1}, {merger, 0}}},
	{name: "a merge that finds no room", buckets: 2, begin: [][2]uint8{{1, live}, {3, live}, {2, live}}, run: [cpus]task{{merger, 0}, {reader, 3}, {killer, 1}}, found: true},
	{name: "two open one flow into a chain", buckets: 1, narrow: true, begin: [][2]uint8{{2, live}}, run: [cpus]task{{opener, 1}, {opener, 1}, {reader, 2}}, once: true, found: true},
	{name: "two open one flow that is chained and due", buckets: 1, narrow: true, begin: [][2]uint8{{2, live}, {1, due}}, run: [cpus]task{{opener, 1}, {opener, 1}, {ender, 2}}},
	{name: "a split of a chain", buckets: 1, narrow: true, begin: [][2]uint8{{2, live}, {1, live}}, run: [cpus]task{{splitter, 0}, {reader, 1}, {opener, 3}}, found: true},
	{name: "a split that gives a chain a slot", buckets: 1, narrow: true, begin: [][2]uint8{{1, live}, {2, live}}, run: [cpus]task{{splitter, 0}, {reader, 2}, {killer, 1}}, found: true},
	{name: "a split of a chain of two", buckets: 1, narrow: true, begin: [][2]uint8{{2, live}, {1, live}, {4, live}}, run: [cpus]task{{splitter, 0}, {reader, 4}, {killer, 2}}, found: true},
	{name: "a split of a chain of which two stay", buckets: 1, narrow: true, begin: [][2]uint8{{1, live}, {2, live}, {4, live}}, run: [cpus]task{{splitter, 0}, {reader, 2}, {killer, 3}}, found: true},
	{name: "an end of what a split has moved from a chain", buckets: 1, narrow: true, begin: [][2]uint8{{2, live}, {1, live}}, run: [cpus]task{{splitter, 0}, {killer, 2}, {opener, 3}}},
	{name: "a split that chains what it moves", buckets: 1, narrow: true, begin: [][2]uint8{{1, live}, {3, live}}, run: [cpus]task{{splitter, 0}, {reader, 3}, {opener, 2}}, found: true},
	{name: "an end in a chain", buckets: 1, narrow: true, begin: [][2]uint8{{2, live}, {1, live}, {3, live}}, run: [cpus]task{{killer, 2}, {killer, 3}, {reader, 2}}, found: true},
	{name: "an end that gives a chain a slot", buckets: 1, narrow: true, begin: [][2]uint8{{2, live}, {1, live}, {3, live}}, run: [cpus]task{{killer, 1}, {killer, 3}, {reader, 1}}, found: true},
	{name: "a chained entry used again under a reader", buckets: 1, narrow: true, begin: [][2]uint8{{2, live}, {1, live}}, run: [cpus]task{{killer, 2}, {opener, 3}, {reader, 2}}, found: true},
	{name: "a chained entry used again in another bucket", buckets: 2, narrow: true, begin: [][2]uint8{{1, live}, {3, live}}, run: [cpus]task{{killer, 2}, {opener, 2}, {reader, 1}}, found: true},
	{name: "a reader beside a move", buckets: 1, begin: [][2]uint8{{1, live}}, run: [cpus]task{{mover, 1}, {reader, 1}, {opener, 2}}, found: true},
	{name: "an opening beside a move", buckets: 1, begin: [][2]uint8{{1, live}}, run: [cpus]task{{mover, 1}, {opener, 1}, {reader, 1}}, found: true},
	{name: "a move of what becomes due", buckets: 1, begin: [][2]uint8{{1, live}}, run: [cpus]task{{mover, 1}, {clock, 1}, {opener, 1}}},
	{name: "a move beside an end", buckets: 1, begin: [][2]uint8{{1, live}}, run: [cpus]task{{mover, 1}, {killer, 1}, {opener, 1}}},
	{name: "a move beside an end and another flow", buckets: 2, begin: [][2]uint8{{1, live}}, run: [cpus]task{{mover, 1}, {killer, 1}, {opener, 2}}},
	{name: "two moves", buckets: 1, begin: [][2]uint8{{1, live}}, run: [cpus]task{{mover, 1}, {mover, 1}, {reader, 1}}, found: true},
	{name: "a move beside a split", buckets: 1, begin: [][2]uint8{{1, live}}, run: [cpus]task{{mover, 1}, {splitter, 0}, {reader, 1}}, found: true},
	{name: "a move beside a merge", buckets: 2, begin: [][2]uint8{{1, live}}, run: [cpus]task{{mover, 1}, {merger, 0}, {reader, 1}}, found: true},
	{name: "a merge that finds a chain", buckets: 2, narrow: true, begin: [][2]uint8{{1, live}, {3, live}}, run: [cpus]task{{merger, 0}, {reader, 3}, {killer, 1}}, found: true},
}

func (sc scenario) world() world {
	w := world{width: slots}
	if sc.narrow {
		w.width = 1
	}
	w.memory[geometry] = sc.buckets
	for n := uint8(1); n <= entries; n++ {
		w.memory[free] |= 1 << n
	}
	var used [2]uint8
	for i, e := range sc.begin {
		n, f := uint8(i)+1, e[0]
		b := bucketOf(f, sc.buckets)
		w.memory[entry(n, expires)] = e[1]
		w.memory[entry(n, flow)] = f
		w.memory[entry(n, content)] = f
		if used[b] < w.width {
			w.memory[slot(b, used[b])] = n
		} else {
			w.memory[entry(n, link)] = w.memory[chain(b)]
			w.memory[chain(b)] = n
		}
		w.memory[free] &^= 1 << n
		w.opened[f]++
		used[b]++
	}
	for i, t := range sc.run {
		c := &w.cpu[i]
		c.program = t.program
		switch t.program {
		case opener, reader:
			c.r[rFlow] = t.of
		case ender, killer, clock, mover:
			c.r[rIndex] = t.of
		}
	}
	return w
}

// always is what holds in each state.
func (w *world) always() error {
	lives := [flows]uint8{}
	for n := uint8(1); n <= entries; n++ {
		if w.memory[entry(n, expires)]&life > abandoned {
			lives[w.memory[entry(n, flow)]]++
		}
		if w.memory[free]>>n&1 == 0 {
			continue
		}
		if w.memory[entry(n, expires)]&life != dead {
			return fmt.Errorf("entry %d is free and lives", n)
		}
		for b := range uint8(2) {
			// After a split or a merge has published the geometry, the bucket that it clears still
			// has entries that are ended by the other bucket. Its claim keeps openings away.
			if w.memory[control(b)]&claimed != 0 {
				continue
			}
			if w.in(b, n) != 0 {
				return fmt.Errorf("entry %d is free and in bucket %d", n, b)
			}
		}
	}
	for f, n := range lives {
		if n > 1 {
			return fmt.Errorf("flow %d has %d entries", f, n)
		}
	}
	return nil
}

// in is how often an entry is in a bucket.
func (w *world) in(b, n uint8) (times int) {
	for i := range uint8(slots) {
		if w.memory[slot(b, i)] == n {
			times++
		}
	}
	at := w.memory[chain(b)]
	for range entries {
		if at == 0 {
			break
		}
		if at == n {
			times++
		}
		at = w.memory[entry(at, link)]
	}
	return times
}

// atEnd is what holds when all programs are over.
func (w *world) atEnd(sc scenario) error {
	lives := [flows]uint8{}
	for n := uint8(1); n <= entries; n++ {
		in := 0
		for b := range uint8(2) {
			k := w.in(b, n)
			in += k
			if k != 0 {
				if want := bucketOf(w.memory[entry(n, flow)], w.memory[geometry]); b != want {
					return fmt.Errorf("entry %d is in bucket %d, want %d", n, b, want)
				}
			}
		}
		isFree := w.memory[free]>>n&1 == 1
		if w.memory[entry(n, expires)]&life == dead {
			if in != 0 || !isFree {
				return fmt.Errorf("entry %d is dead, is in %d buckets, free: %v", n, in, isFree)
			}
			continue
		}
		if w.memory[entry(n, expires)]&life != abandoned {
			lives[w.memory[entry(n, flow)]]++
		}
		if in != 1 || isFree {
			return fmt.Errorf("entry %d lives or is abandoned, is in %d buckets, free: %v", n, in, isFree)
		}
	}
	for f := range lives {
		if w.opened[f]-w.ended[f] != lives[f] {
			return fmt.Errorf("flow %d: %d opened, %d ended, %d live", f, w.opened[f], w.ended[f], lives[f])
		}
	}
	if w.mistaken {
		return errors.New("a command has ended another flow than its own")
	}
	won := 0
	for i, c := range w.cpu {
		if b := uint8(i); b < 2 && w.memory[control(b)]&claimed != 0 {
			return fmt.Errorf("bucket %d stays claimed", b)
		}
		switch {
		case c.result == foundMixed:
			return fmt.Errorf("CPU %d found another connection's fields", i)
		case c.result == absent && sc.found:
			return fmt.Errorf("CPU %d did not find a flow that lives", i)
		case c.result == found && sc.absent:
			return fmt.Errorf("CPU %d found a flow that does not live", i)
		case c.result == opened:
			won++
		}
	}
	if sc.once && won != 1 {
		return fmt.Errorf("%d CPUs opened the flow", won)
	}
	return nil
}

// explore visits all states: how many, and what does not hold in one of them.
func explore(sc scenario, f fault) (int, error) {
	first, seed := sc.world(), maphash.MakeSeed()
	// By a hash of 64 bits: a state that is taken for another one would be left out.
	seen := map[uint64]struct{}{maphash.Comparable(seed, first): {}}
	next := []world{first}
	for len(next) > 0 {
		w := next[len(next)-1]
		next = next[:len(next)-1]
		if err := w.always(); err != nil {
			return len(seen), err
		}
		more := false
		w.successors(f, func(to world) {
			more = true
			h := maphash.Comparable(seed, to)
			if _, known := seen[h]; !known {
				seen[h] = struct{}{}
				next = append(next, to)
			}
		})
		if !more {
			if err := w.atEnd(sc); err != nil {
				return len(seen), err
			}
		}
	}
	return len(seen), nil
}

// The protocol holds in every order.
func TestProtocolInEveryOrder(t *testing.T) {
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			n, err := explore(sc, none)
			if err != nil {
				t.Error(err)
			}
			t.Logf("%d states", n)
			if n < 100 {
				t.Errorf("only %d states", n)
			}
		})
	}
}

// No rule is superfluous, and the explorer sees what happens without it.
func TestEachFaultIsNoticed(t *testing.T) {
	for f := none + 1; f < faults; f++ {
		noticed := ""
		for _, sc := range scenarios {
			if _, err := explore(sc, f); err != nil {
				noticed = fmt.Sprintf("%s: %v", sc.name, err)
				break
			}
		}
		if noticed == "" {
			t.Errorf("fault %d is not noticed", f)
		} else {
			t.Logf("fault %d: %s", f, noticed)
		}
	}
}
