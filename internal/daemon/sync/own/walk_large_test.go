// SPDX-License-Identifier: Apache-2.0

package own

import (
	"testing"
	"time"
)

// A table that takes longer to read than the interval of the passes, as one of more than two
// million entries at the default rate does, is refreshed in time: a packet each 800 s keeps
// a connection of 900 s on the backup, too.
func TestRefreshOfALargeTable(t *testing.T) {
	w := newWorld(t, 1, 0)
	w.delay = time.Millisecond
	master, backup := w.node(), w.node()
	const entries = 3072
	master.config.WalkRate = entries / 20 // a pass takes 20 s, as of 4 million entries at the default rate
	master.sender()
	backup.receiver()
	for i := range entries {
		c := conn(i)
		master.table[keyOf(&c)] = entry{c, w.now + c.Expires}
	}
	w.run(2 * time.Second)
	backup.same(master)
	for i := range entries { // a packet each 800 s, which is not told
		var packet func()
		packet = func() {
			c := conn(i)
			master.table[keyOf(&c)] = entry{c, w.now + c.Expires}
			w.at(w.now+800*time.Second, packet)
		}
		w.at(w.now+time.Duration(i)*800*time.Second/entries, packet)
	}
	for range 90 {
		w.run(time.Minute)
		expired := 0
		for _, e := range backup.table {
			if e.at < w.now {
				expired++
			}
		}
		if expired > 0 {
			t.Fatalf("after %v %d copies of %d living connections have expired", w.now, expired, entries)
		}
	}
}

// However long passes take, an entry has one turn in each half of its timeout.
func TestTurnsOfIrregularPasses(t *testing.T) {
	w := newWorld(t, 1, 0)
	walk := walk{seed: 7}
	c := conn(1)
	turns := 0
	const passes = 2000
	for range passes {
		walk.begin(walk.next, time.Duration(5+w.rng.IntN(100))*time.Second)
		if walk.due(walk.began, &c) {
			turns++
		}
	}
	if want := int(walk.began / (c.Timeout / 2)); turns < want-1 || turns > want+1 {
		t.Errorf("%d turns in %v, want %d", turns, walk.began, want)
	}
}
