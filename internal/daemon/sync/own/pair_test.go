// SPDX-License-Identifier: Apache-2.0

package own

import (
	"net/netip"
	"testing"
	"time"
)

// Both directors serve clients, and have all connections of both.
func TestPairConverges(t *testing.T) {
	eachWire(t, func(t *testing.T, w *world) {
		a, b := twins(w)
		for i := range 2000 { // from before they knew each other
			a.entries[keyOf(ptr(conn(1<<21+i)))] = &twinEntry{conn: conn(1<<21 + i), ends: 900 * time.Second}
			b.entries[keyOf(ptr(conn(1<<22+i)))] = &twinEntry{conn: conn(1<<22 + i), ends: 900 * time.Second}
		}
		a.start()
		b.start()
		a.load(4*time.Second, 0, 1<<16, 2)
		b.load(4*time.Second, 1<<17, 1<<16, 2)
		w.run(4*time.Second + quiet)
		wantUnion(a, b, true, "after the load")
		for _, x := range []*twin{a, b} {
			if x.n.count(EventTwoMasters)+x.n.count(EventOtherRole) != 0 || x.n.count(EventSynced) == 0 || x.kept+x.beaten != 0 {
				t.Errorf("%v: %v, %d, %d", x.n.addr, x.n.log, x.kept, x.beaten)
			}
		}
		if len(a.entries) < 5000 {
			t.Errorf("%d entries", len(a.entries))
		}
	})
}

// Two directors without packets send nothing but beats and acknowledgements, whatever they have
// of each other. Packets at one do not have the other one send.
func TestPairSendsNothingBack(t *testing.T) {
	w := newWorld(t, 1, 0)
	a, b := twins(w)
	a.start()
	b.start()
	for i := range 500 {
		a.packet(conn(i))
		b.packet(conn(1000 + i))
	}
	w.run(time.Minute) // the first refreshes of what had packets just now
	numbered := func(x *twin) uint64 { return x.pair.Sender.Counts().Datagrams }
	quietFrom := w.now
	w.run(8 * time.Minute)
	// Each entry is refreshed once more, by its turn in the half of its timeout that follows.
	if n := a.pair.Sender.Counts().Refreshes; n > 500 {
		t.Errorf("%d refreshes", n)
	}
	before := [2]uint64{numbered(a), numbered(b)}
	w.run(5 * time.Minute)
	if after := [2]uint64{numbered(a), numbered(b)}; after != before {
		t.Errorf("%v datagrams with entries in %v without packets", [2]uint64{after[0] - before[0], after[1] - before[1]}, w.now-quietFrom)
	}

	mine := conn(7)
	entries := b.pair.Sender.Counts().Entries
	for i := range 600 {
		c := mine
		c.State = []string{"ESTABLISHED", "FIN_WAIT"}[i/100%2]
		a.packet(c)
		w.run(time.Second)
	}
	if n := b.pair.Sender.Counts().Entries; n != entries {
		t.Errorf("%d entries were sent back", n-entries)
	}
	wantUnion(a, b, false, "in the end")
	if e := b.entries[keyOf(&mine)]; !e.replica || e.ends < w.now+900*time.Second {
		t.Errorf("the replica is %+v at %v", e, w.now)
	}
}

// A director that dies and comes back, empty or not, gets all, and the other one loses nothing.
func TestPairRestarts(t *testing.T) {
	eachWire(t, func(t *testing.T, w *world) {
		a, b := twins(w)
		a.start()
		b.start()
		for i := range 300 { // idle ones
			a.packet(conn(1<<21 + i))
			b.packet(conn(1<<22 + i))
		}
		const forEver = time.Hour
		a.load(forEver, 0, 1<<16, 1)
		b.load(forEver, 1<<17, 1<<16, 1)
		w.run(3 * time.Second)
		for i := range 5 {
			x, other := a, b
			if w.rng.IntN(2) == 0 {
				x, other = b, a
			}
			x.stop(i%2 == 0)
			had := map[key]bool{}
			for k := range other.entries {
				had[k] = true
			}
			w.run(time.Duration(w.rng.Int64N(int64(12 * time.Second))))
			for n := range 300 {
				for _, first := range []int{1 << 21, 1 << 22} {
					if k := keyOf(ptr(conn(first + n))); had[k] && other.entries[k] == nil {
						t.Fatalf("the survivor lost %v", k)
					}
				}
			}
			x.start()
			x.load(forEver, (1<<18)+(i<<16), 1<<16, 1)
			w.run(4 * time.Second)
		}
		a.life++ // the loads end, and the expiry: nothing does in this time
		b.life++
		w.run(quiet)
		wantUnion(a, b, false, "in the end")
		for i := range 300 {
			for _, first := range []int{1 << 21, 1 << 22} {
				k := keyOf(ptr(conn(first + i)))
				if a.entries[k] == nil || b.entries[k] == nil {
					t.Fatalf("%v is lost", k)
				}
			}
		}
	})
}

// Both serve while they do not reach each other. Within 2 s after that both have all
// that had packets at either, and copies of what ended meanwhile expire.
func TestPairSplit(t *testing.T) {
	for seed := range *seeds {
		for _, c := range []struct {
			away time.Duration // 12 s: longer than a sender knows a receiver that is silent
			loss float64
		}{{800 * time.Millisecond, 0.05}, {5 * time.Second, 0}, {12 * time.Second, 0.05}} {
			away, loss := c.away, c.loss
			w := newWorld(t, seed, loss)
			a, b := twins(w)
			for _, x := range []*twin{a, b} {
				x.n.config.Store, x.n.config.Window = 256, 64
				x.start()
			}
			for i := range 1000 { // long ones of both
				a.packet(conn(1<<21 + i))
				b.packet(conn(1<<22 + i))
			}
			w.run(2 * time.Second)
			wantUnion(a, b, true, "before")
			w.loss = 1
			a.load(w.now+away, 0, 1<<16, 1)
			b.load(w.now+away, 1<<17, 1<<16, 1)
			for i := range 1000 { // each half of the other one's clients comes here
				if i%2 == 0 {
					w.run(away / 2000)
					b.packet(conn(1<<21 + i))
					a.packet(conn(1<<22 + i))
				}
			}
			w.run(away * 3 / 4)
			w.loss = loss
			w.run(2 * time.Second)
			wantUnion(a, b, false, "healed")
			for i := range 1000 {
				for _, first := range []int{1 << 21, 1 << 22} {
					k := keyOf(ptr(conn(first + i)))
					if a.entries[k] == nil || b.entries[k] == nil {
						t.Fatalf("away for %v: %v is lost", away, k)
					}
				}
			}
			if loss == 0 {
				w.run(25 * time.Minute) // all expire
				wantUnion(a, b, true, "in the end")
			}
		}
	}
}

// Of an entry that both have with another server the one with the later packet stays at
// both; if the packets came at the same time each keeps its own. It is counted.
func TestPairDifferentServers(t *testing.T) {
	for _, later := range []time.Duration{0, 100 * time.Millisecond, 3 * time.Second} {
		w := newWorld(t, 1, 0)
		a, b := twins(w)
		a.start()
		b.start()
		w.run(time.Second)
		w.loss = 1
		w.run(2 * time.Second)
		mine, theirs := conn(1), conn(1)
		theirs.Server = netip.MustParseAddrPort("10.2.0.9:8080")
		theirs.RealServer = theirs.Server
		k := keyOf(&mine)
		a.packet(mine)
		w.run(later)
		b.packet(theirs)
		w.run(time.Second)
		w.loss = 0
		w.run(2 * time.Second)
		want := mine.RealServer
		if later > time.Second {
			want = theirs.RealServer
		}
		if a.entries[k].conn.RealServer != want || b.entries[k].conn.RealServer != theirs.RealServer {
			t.Errorf("%v later: %v and %v", later, a.entries[k].conn.RealServer, b.entries[k].conn.RealServer)
		}
		if a.kept+a.beaten+b.kept+b.beaten == 0 {
			t.Errorf("%v later: it was not counted", later)
		}
	}
}

// A connection ends at its director while the other one sends its replica in a transfer of
// the whole table: it does not come back.
func TestPairEndedDuringTransfer(t *testing.T) {
	eachWire(t, func(t *testing.T, w *world) {
		a, b := twins(w)
		b.n.config.Rate = 60 // [datagrams/s]: it takes longer than to notice that the session is over
		a.start()
		b.start()
		for i := range 10_000 {
			a.packet(conn(i))
		}
		w.run(3 * time.Second)
		wantUnion(a, b, true, "before")
		a.stop(false)
		a.had = false
		w.run(100 * time.Millisecond)
		a.start() // it requests all, with replicas
		for !b.pair.Receiver.State().Synced || b.pair.Receiver.State().Session != a.pair.Sender.Session() {
			w.run(time.Millisecond)
		}
		if a.pair.Receiver.State().Synced {
			t.Fatal("the transfer of the replicas is over")
		}
		for i := range 100 {
			for j := range 80 {
				a.end(keyOf(ptr(conn(100*j + i))))
			}
			w.run(5 * time.Millisecond)
		}
		w.run(quiet)
		wantUnion(a, b, true, "after")
		if len(a.entries) != 2000 {
			t.Errorf("%d entries", len(a.entries))
		}
		if n := b.pair.Sender.Counts().Entries; n == 0 {
			t.Error("replicas were not sent")
		}
	})
}

// What the other director had at a time is here when HasAll says so, also after a
// pause in which datagrams were queued.
func TestPairHasAll(t *testing.T) {
	eachWire(t, func(t *testing.T, w *world) {
		a, b := twins(w)
		a.start()
		if a.hasAll(0) {
			t.Error("alone")
		}
		b.start()
		b.load(time.Hour, 0, 1<<16, 2)
		w.run(2 * time.Second)
		for range 20 {
			since := w.now
			had := map[key]*twinEntry{}
			for _, k := range b.keys() {
				had[k] = b.entries[k]
			}
			slow := time.Duration(0)
			if w.rng.IntN(3) == 0 {
				slow = 700 * time.Millisecond
				w.delay = slow // what is sent now is old when it comes
			}
			w.run(time.Duration(w.rng.Int64N(int64(40 * time.Millisecond))))
			w.delay = 3 * time.Millisecond
			for !a.hasAll(since) {
				if w.now-since > 6*time.Second {
					t.Fatalf("after %v it is not known: %+v", w.now-since, a.pair.Receiver.State())
				}
				w.run(10 * time.Millisecond)
			}
			for k, e := range had { // one that ended may have been opened anew
				if a.entries[k] == nil && b.entries[k] == e {
					t.Fatalf("%v is missing", k)
				}
			}
		}
	})
}

func (t *twin) hasAll(since time.Duration) (all bool) {
	t.n.do(func(out *Output) { all = t.pair.Receiver.HasAll(t.n.clock(), since+t.n.offset, out) })
	return all
}

// Directors of a pair and those of other roles do not work together, and report it.
func TestPairWithOtherRoles(t *testing.T) {
	for _, role := range []string{"master", "backup"} {
		w := newWorld(t, 1, 0)
		a, other := newTwin(w.node()), w.node()
		a.n.config.To, other.config.To = to(other.addr), to(a.n.addr)
		a.start()
		a.packet(conn(1))
		if role == "master" {
			other.sender()
			other.put(conn(2))
		} else {
			other.receiver()
		}
		w.run(5 * time.Second)
		if len(a.entries) != 1 || len(other.table) > 1 {
			t.Errorf("%s: entries were sent", role)
		}
		if n, m := a.n.count(EventOtherRole), other.count(EventOtherRole); n < 4 || n > 6 || m < 4 || m > 6 {
			t.Errorf("%s: %d and %d reports", role, n, m)
		}
	}
}

func TestPairRefuses(t *testing.T) {
	w := newWorld(t, 1, 0)
	for _, list := range [][]netip.AddrPort{nil, to(group), to(netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("10.0.0.2:1"))} {
		c := w.node().config
		c.To = list
		if _, err := NewPair(0, c); err == nil {
			t.Errorf("%v", list)
		}
	}
}

func ptr[T any](v T) *T { return &v }
