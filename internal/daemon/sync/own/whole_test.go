// SPDX-License-Identifier: Apache-2.0

package own

import (
	"testing"
	"time"
)

// What ended at the director that serves does not come back with the replicas of the other one: not
// when its daemon is restarted, in which time nobody tells of ends.
func TestPairRestartResurrectsNothing(t *testing.T) {
	w := newWorld(t, 1, 0)
	a, b := twins(w)
	a.start()
	b.start()
	for i := range 300 {
		a.packet(conn(i))
	}
	w.run(3 * time.Second)
	wantUnion(a, b, true, "before")
	a.stop(false)
	for i := range 100 {
		delete(a.entries, keyOf(ptr(conn(i))))
	}
	w.run(2 * time.Second)
	a.start()
	w.run(5 * time.Second)
	if !a.pair.Receiver.State().Synced || len(a.entries) != 200 {
		t.Errorf("%d entries, %+v", len(a.entries), a.pair.Receiver.State())
	}
}

// A director returns after a time in which the other one took over its connections and ended most of
// them, more than there are notes of. They do not come back; what had packets at either is at both.
func TestPairLongAbsence(t *testing.T) {
	w := newWorld(t, 1, 0)
	a, b := twins(w)
	a.start()
	b.start()
	const all = 2000
	for i := range all {
		a.packet(conn(i))
	}
	w.run(3 * time.Second)
	wantUnion(a, b, true, "before")
	w.loss = 1
	w.run(20 * time.Second)
	a.packet(conn(all)) // it still has clients
	for i := range all {
		if i%4 != 0 {
			b.end(keyOf(ptr(conn(i))))
		}
	}
	for i := range b.pair.ended.sets { // so much ends meanwhile
		b.pair.ended.sets[i] = [endedWays]endedNote{}
	}
	w.run(10 * time.Minute)
	w.loss = 0
	w.run(5 * time.Second)
	if b.pair.Receiver.State().Synced == false {
		t.Fatalf("%+v", b.pair.Receiver.State())
	}
	if len(b.entries) != all/4+1 {
		t.Errorf("%d entries", len(b.entries))
	}
	for i := range all {
		if k := keyOf(ptr(conn(i))); i%4 == 0 && (a.entries[k] == nil || b.entries[k] == nil) {
			t.Fatalf("%v is lost", k)
		}
	}
	w.run(25 * time.Minute) // all expire
	wantUnion(a, b, true, "in the end")
}

// An entry that ends later than a timeout from now says nothing of its last packet: it gives way
// to one of a known packet, and is entered where there is none.
func TestPairIdle(t *testing.T) {
	c := conn(1)
	if got := pairIdle(&c); got != 0 {
		t.Error(got)
	}
	c.Expires = c.Timeout - time.Minute
	if got := pairIdle(&c); got != time.Minute {
		t.Error(got)
	}
	c.Expires = c.Timeout + time.Minute
	if got := pairIdle(&c); got != unknownIdle {
		t.Error(got)
	}
	w := whole{at: time.Hour, known: true}
	c.Idle = unknownIdle
	if w.had(time.Hour, &c) {
		t.Error("it was here")
	}
}
