// SPDX-License-Identifier: Apache-2.0

package own

import (
	"testing"
	"time"
)

// A director that is far away is asked, too: an answer is good for its question, though others
// were asked since. Each 10 ms somebody asks, as Merge does, and while the other director serves.
func TestPairHasAllFromAfar(t *testing.T) {
	for _, far := range []time.Duration{60 * time.Millisecond, 400 * time.Millisecond} {
		for _, loss := range []float64{0, 0.05} {
			w := newWorld(t, 1, loss)
			w.far = far
			a, b := twins(w)
			a.start()
			b.start()
			b.load(time.Hour, 0, 1<<16, 2)
			w.run(2 * time.Second)
			for range 5 {
				since := w.now
				for !a.hasAll(since) {
					if w.now-since > 4*time.Second {
						t.Fatalf("%v away: it is not known: %+v", far, a.pair.Receiver.State())
					}
					w.run(10 * time.Millisecond)
				}
				if w.now-since < 2*far {
					t.Errorf("%v away: known after %v", far, w.now-since)
				}
			}
		}
	}
}

// Somebody asks each time for what the other director has now, as long as it serves: the answer
// advances, though no question is answered before the next one is asked.
func TestPairHasAllOfEachMoment(t *testing.T) {
	w := newWorld(t, 1, 0)
	w.far = 100 * time.Millisecond
	a, b := twins(w)
	a.start()
	b.start()
	b.load(time.Hour, 0, 1<<16, 2)
	w.run(2 * time.Second)
	questions := 0
	w.wire = func(from *node, d Datagram) {
		if from == a.n && kind(d.Bytes[4]) == kindHello {
			questions++
		}
	}
	known := 0
	for range 300 {
		if a.hasAll(w.now - 600*time.Millisecond) {
			known++
		}
		w.run(10 * time.Millisecond)
	}
	if known < 150 || questions > 60 {
		t.Errorf("known %d times of 300, %d questions", known, questions)
	}
}

// What happened before a question is asked for may still be in the ring of the other director's
// data plane, as while another command has its table locked: the answer comes after that was
// read, or not at all.
func TestPairHasAllWithUnreadEvents(t *testing.T) {
	w := newWorld(t, 1, 0)
	a, b := twins(w)
	a.start()
	b.start()
	w.run(2 * time.Second)
	b.stalled = true
	mine := conn(1)
	b.packet(mine)
	w.run(time.Second)
	since := w.now
	for range 50 {
		if a.hasAll(since) {
			t.Fatal("an entry that is in the ring is here")
		}
		w.run(10 * time.Millisecond)
	}
	b.stalled = false
	b.drain()
	for !a.hasAll(since) {
		if w.now-since > 3*time.Second {
			t.Fatal("it is not known")
		}
		w.run(10 * time.Millisecond)
	}
	if a.entries[keyOf(&mine)] == nil {
		t.Error("the entry is not here")
	}
}
