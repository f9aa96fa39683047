// SPDX-License-Identifier: Apache-2.0

package own

import (
	"fmt"
	"testing"
	"time"
)

// quiet is after how long without changes tables have to be the same.
const quiet = 2 * time.Second

func eachWire(t *testing.T, run func(t *testing.T, w *world)) {
	for _, loss := range []float64{0, 0.01, 0.05, 0.2} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("loss %v seed %d", loss, seed), func(t *testing.T) { run(t, newWorld(t, seed, loss)) })
		}
	}
}

func TestTablesConverge(t *testing.T) {
	eachWire(t, func(t *testing.T, w *world) {
		master, backup, late := w.node().sender(), w.node().receiver(), w.node()
		for i := range 5000 { // from before the backup joined
			c := conn(1<<21 + i)
			master.table[keyOf(&c)] = entry{c, w.now + c.Expires}
		}
		master.load(4*time.Second, 3)
		w.run(2 * time.Second)
		late.receiver() // in the middle
		w.run(2*time.Second + quiet)
		backup.same(master)
		late.same(master)
		if backup.count(EventSynced) == 0 || late.count(EventSynced) == 0 || backup.count(EventTwoMasters) != 0 {
			t.Errorf("events: %v, %v", backup.log, late.log)
		}
	})
}

func TestRestartsConverge(t *testing.T) {
	eachWire(t, func(t *testing.T, w *world) {
		master, a, b := w.node().sender(), w.node().receiver(), w.node().receiver()
		master.load(time.Hour, 2)
		for range 6 {
			w.run(time.Duration(w.rng.Int64N(int64(1500 * time.Millisecond))))
			n := w.nodes[w.rng.IntN(3)]
			n.down = true
			w.run(time.Duration(w.rng.Int64N(int64(3 * time.Second))))
			switch {
			case n == master:
				// What happened while the daemon was away was not sent.
				gone := 0
				for _, k := range n.table.cursor(func() time.Duration { return w.now }).keys {
					if gone++; gone%3 == 0 {
						delete(n.table, k)
					}
				}
				n.sender()
				n.load(time.Hour, 2)
			case w.rng.IntN(2) == 0:
				clear(n.table) // the machine
				n.receiver()
			default:
				n.receiver() // the daemon
			}
		}
		w.run(time.Second)
		master.idle = true
		w.run(quiet)
		a.same(master)
		b.same(master)
	})
}
