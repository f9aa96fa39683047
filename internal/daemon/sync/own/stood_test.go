// SPDX-License-Identifier: Apache-2.0

package own

import (
	"testing"
	"time"
)

// freeze stops a director with its clock, as a suspended machine; thaw has it go on.
func (t *twin) freeze() { t.n.down = true }

func (t *twin) thaw(stood time.Duration) {
	t.n.down = false
	t.n.offset -= stood
	for _, e := range t.entries { // times of a clock that stood
		e.ends, e.last = e.ends+stood, e.last+stood
	}
	t.n.do(func(out *Output) { t.pair.Tick(t.n.clock(), out) })
}

// A director whose clock stood does not know how old its entries are: what packets made of a
// connection at the other one meanwhile stays there, and comes to it.
func TestPairClockStood(t *testing.T) {
	for _, stood := range []time.Duration{3 * time.Second, 30 * time.Second, 5 * time.Minute} {
		w := newWorld(t, 1, 0)
		a, b := twins(w)
		a.start()
		b.start()
		w.run(time.Second)
		for i := range 100 {
			a.packet(conn(i))
		}
		w.run(25 * time.Second) // it knows the other one's clock
		wantUnion(a, b, true, "before")
		a.freeze()
		w.run(stood / 4)
		for i := range 50 {
			c := conn(i)
			c.State = "FIN_WAIT"
			c.Timeout = 900 * time.Second
			b.packet(c)
		}
		w.run(stood - stood/4)
		a.thaw(stood)
		w.run(5 * time.Second)
		for _, x := range []struct {
			name string
			t    *twin
		}{{"the other one", b}, {"the one that stood", a}} {
			for i := range 50 {
				if e := x.t.entries[keyOf(ptr(conn(i)))]; e == nil || e.conn.State != "FIN_WAIT" {
					t.Errorf("%v, 5 s later, %s: %+v", stood, x.name, e)
					break
				}
			}
		}
		w.run(8 * time.Minute) // refreshes
		for i := range 50 {
			if e := b.entries[keyOf(ptr(conn(i)))]; e == nil || e.conn.State != "FIN_WAIT" {
				t.Errorf("%v, after refreshes: %+v", stood, e)
				break
			}
		}
	}
}
