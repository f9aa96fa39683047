// SPDX-License-Identifier: Apache-2.0

package own

import (
	"testing"
	"time"
)

// waiting for the master to find out that the killed one is silent.
func TestBulkOfARestartedReceiver(t *testing.T) {
	w := newWorld(t, 1, 0)
	master, backup := w.node().sender(), w.node()
	for i := range 100_000 {
		c := conn(i)
		master.table[keyOf(&c)] = entry{c, w.now + c.Expires}
	}
	w.run(time.Second)
	backup.receiver()
	for backup.receive.counts.Entries < 20_000 {
		w.run(time.Millisecond)
	}
	backup.table = table{}
	backup.receiver() // killed, and started again at once
	began := w.now
	for !backup.receive.State().Synced && w.now-began < time.Minute {
		w.run(10 * time.Millisecond)
	}
	if took := w.now - began; took > 5*time.Second {
		t.Errorf("100 000 entries took %v after the restart", took)
	}
	backup.same(master)
}

// A backup that is killed during its bulk transfer does not hold up one that joins.
func TestBulkBesideAKilledReceiver(t *testing.T) {
	w := newWorld(t, 1, 0)
	master, first, second := w.node().sender(), w.node(), w.node()
	for i := range 100_000 {
		c := conn(i)
		master.table[keyOf(&c)] = entry{c, w.now + c.Expires}
	}
	w.run(time.Second)
	first.receiver()
	for first.receive.counts.Entries < 20_000 {
		w.run(time.Millisecond)
	}
	first.down = true
	second.receiver()
	began := w.now
	for !second.receive.State().Synced && w.now-began < time.Minute {
		w.run(10 * time.Millisecond)
	}
	if took := w.now - began; took > 5*time.Second {
		t.Errorf("the other backup waited %v", took)
	}
}
