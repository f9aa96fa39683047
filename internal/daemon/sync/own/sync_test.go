// SPDX-License-Identifier: Apache-2.0

package own

import (
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"imbang/internal/model"
)

// quiet is after how long without changes tables have to be the same.
const quiet = 2 * time.Second

// seeds is how many runs each test makes for each loss rate; 100 take minutes.
var seeds = flag.Uint64("seeds", 2, "seeds for each simulated network")

func eachWire(t *testing.T, run func(t *testing.T, w *world)) {
	for _, loss := range []float64{0, 0.01, 0.05, 0.2} {
		for seed := range *seeds {
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
		if a.count(EventTwoMasters)+b.count(EventTwoMasters) != 0 {
			t.Errorf("a master that was restarted is taken for two: %+v, %+v", a.log, b.log)
		}
	})
}

func TestReceiverFallsBehind(t *testing.T) {
	for seed := range uint64(3) {
		for _, away := range []time.Duration{700 * time.Millisecond, 3 * time.Second, 20 * time.Second} {
			w := newWorld(t, seed, 0.01)
			master, backup := w.node(), w.node()
			master.config.Store, master.config.Window, master.config.MaxDatagram = 128, 32, MinDatagram
			master.sender()
			backup.receiver()
			master.load(time.Hour, 4)
			w.run(time.Second)
			loss := w.loss
			w.loss = 1 // a partition
			w.run(away)
			w.loss = loss
			w.run(time.Second)
			master.idle = true
			w.run(quiet)
			backup.same(master)
			if backup.count(EventFellBehind) == 0 && backup.receive.Counts().Bulks < 2 {
				t.Errorf("away for %v, and nothing was transferred anew: %v", away, backup.log)
			}
		}
	}
}

func TestBriefPartitionNeedsNoBulk(t *testing.T) {
	w := newWorld(t, 1, 0)
	master, backup := w.node().sender(), w.node().receiver()
	master.load(time.Hour, 4)
	w.run(time.Second)
	for _, away := range []time.Duration{300 * time.Millisecond, 3 * time.Second, 15 * time.Second} {
		w.loss = 1
		w.run(away)
		w.loss = 0
		w.run(time.Second)
	}
	master.idle = true
	w.run(quiet)
	backup.same(master)
	if n := backup.receive.Counts().Bulks; n != 1 {
		t.Errorf("%d bulk transfers", n)
	}
	if master.count(EventReceiverLost) != 1 || master.count(EventReceiverJoined) != 2 {
		t.Errorf("events: %v", master.log)
	}
}

// TestDelay is that a record does not wait longer than 20 ms.
func TestDelay(t *testing.T) {
	w := newWorld(t, 1, 0)
	master, backup := w.node().sender(), w.node().receiver()
	w.run(time.Second)
	for i := range 50 {
		c := conn(i)
		master.put(c)
		w.run(flushAfter + w.delay)
		if _, ok := backup.table[keyOf(&c)]; !ok {
			t.Fatalf("connection %d did not arrive", i)
		}
		w.run(time.Duration(w.rng.Int64N(int64(100 * time.Millisecond))))
	}
}

func TestSlowReceiverIsNotOverrun(t *testing.T) {
	w := newWorld(t, 1, 0)
	master, backup, other := w.node(), w.node(), w.node()
	for i := range 100_000 {
		c := conn(i)
		master.table[keyOf(&c)] = entry{c, w.now + c.Expires}
	}
	master.config.Window = 48
	master.sender()
	backup.slow = 500 * time.Microsecond // 2000 datagrams/s
	backup.receiver()
	w.run(3 * time.Second)
	backup.same(master)
	if backup.dropped > 20 {
		t.Errorf("%d datagrams were dropped of %d", backup.dropped, master.send.Counts().Datagrams)
	}
	if n := master.send.Counts(); n.Bulks != 1 {
		t.Errorf("%d bulk transfers", n.Bulks)
	}
	other.receiver()
	w.run(3 * time.Second)
	other.same(master)
	if n := backup.receive.Counts(); n.Bulks != 1 || n.Entries != 100_000 {
		t.Errorf("the transfer for another receiver was applied: %+v", n)
	}
}

// TestBulkIsFast is that of 200 000 connections over a wire with losses and a round trip of
// 3 ms; a million takes five times as long.
func TestBulkIsFast(t *testing.T) {
	for loss, most := range map[float64]time.Duration{0: 400 * time.Millisecond, 0.01: time.Second, 0.05: 1500 * time.Millisecond} {
		w := newWorld(t, 1, loss)
		master, backup := w.node(), w.node()
		for i := range 200_000 {
			c := conn(i)
			master.table[keyOf(&c)] = entry{c, w.now + c.Expires}
		}
		master.sender()
		backup.receiver()
		for !backup.receive.State().Synced && w.now < time.Minute {
			w.run(10 * time.Millisecond)
		}
		t.Logf("loss %v: %v", loss, w.now)
		if w.now > most {
			t.Errorf("loss %v: %v", loss, w.now)
		}
	}
}

func TestRate(t *testing.T) {
	w := newWorld(t, 1, 0)
	master, backup := w.node(), w.node()
	for i := range 100_000 {
		c := conn(i)
		master.table[keyOf(&c)] = entry{c, w.now + c.Expires}
	}
	master.config.Rate = 1000
	master.sender()
	backup.receiver()
	// 100 000 records of 32 bytes, 42 in a datagram: 2381 datagrams.
	w.run(2200 * time.Millisecond)
	if backup.receive.State().Synced {
		t.Error("faster than the rate")
	}
	w.run(400 * time.Millisecond)
	if !backup.receive.State().Synced {
		t.Error("slower than the rate")
	}
	backup.same(master)
}

func TestTwoMasters(t *testing.T) {
	eachWire(t, func(t *testing.T, w *world) {
		a, backup := w.node().sender(), w.node().receiver()
		a.load(time.Hour, 1)
		w.run(2 * time.Second)
		followed := backup.receive.State().Session
		b := w.node()
		c := conn(1 << 22)
		b.table[keyOf(&c)] = entry{c, w.now + c.Expires}
		b.sender()
		w.run(15 * time.Second)
		for _, n := range []*node{a, b, backup} {
			if times := n.count(EventTwoMasters); times < 1 || times > 2 {
				t.Errorf("node %s: %d alarms", n.addr, times)
			}
		}
		if got := backup.receive.State(); got.Session != followed || !got.Following {
			t.Errorf("the session changed to %+v", got)
		}
		a.idle = true
		w.run(quiet)
		backup.same(a)
		// The first one ends, and the receiver follows the other.
		a.do(func(out *Output) { a.send.Close(a.clock(), out) })
		w.run(w.delay + 2*helloEvery + quiet)
		backup.same(b)
	})
}

func TestMasterDies(t *testing.T) {
	w := newWorld(t, 3, 0.01)
	a, b, c := w.node().sender(), w.node().receiver(), w.node().receiver()
	a.load(time.Hour, 1)
	w.run(2 * time.Second)
	a.down = true
	w.run(100 * time.Millisecond)
	b.sender()
	b.load(time.Hour, 1)
	w.run(time.Second)
	b.idle = true
	w.run(quiet)
	c.same(b)
	if c.count(EventSessionLost) != 1 || c.count(EventFollowing) != 2 {
		t.Errorf("events: %v", c.log)
	}
}

func TestBarrier(t *testing.T) {
	eachWire(t, func(t *testing.T, w *world) {
		master, backup := w.node(), w.node()
		for i := range 4000 {
			c := conn(1<<21 + i)
			master.table[keyOf(&c)] = entry{c, w.now + c.Expires}
		}
		master.sender()
		master.load(time.Hour, 3)
		barrier := func() uint64 {
			var at uint64
			master.do(func(out *Output) { at = master.send.Barrier(master.clock(), out) })
			return at
		}
		w.run(100 * time.Millisecond)
		first := barrier()
		backup.receiver()
		for master.count(EventReceiverJoined) == 0 {
			w.run(time.Millisecond)
		}
		for len(master.reached) == 0 {
			if w.run(time.Millisecond); w.now > time.Minute {
				t.Fatal("no answer")
			}
		}
		// A receiver that joins later has reached a barrier when it has the whole table.
		if got := master.reached[0]; got.Barrier != first || !backup.receive.State().Synced {
			t.Errorf("got %+v, %+v", got, backup.receive.State())
		}
		for range 6 {
			before := map[key]entry{}
			for k, e := range master.table {
				before[k] = e
			}
			master.idle = true // or the table goes on changing
			master.reached = nil
			at := barrier()
			for began := w.now; len(master.reached) == 0; {
				if w.run(time.Millisecond); w.now-began > time.Second {
					t.Fatal("no answer")
				}
			}
			if got := master.reached[0]; got.Barrier != at || got.Peer != backup.addr {
				t.Errorf("got %+v", got)
			}
			backup.same(&node{w: w, table: before})
			w.run(50 * time.Millisecond)
			if len(master.reached) != 1 {
				t.Errorf("reached %d times", len(master.reached))
			}
			master.idle = false
			master.load(w.now+50*time.Millisecond, 3)
			w.run(60 * time.Millisecond)
		}
	})
}

// A receiver that had everything when it ended reaches no barrier.
func TestBarrierOfADeadReceiver(t *testing.T) {
	w := newWorld(t, 1, 0)
	master, backup := w.node(), w.node()
	master.sender()
	backup.receiver()
	w.run(3 * time.Second)
	for _, alive := range []bool{true, false} {
		if !alive {
			backup.down = true
		}
		master.reached = nil
		master.do(func(out *Output) { master.send.Barrier(master.clock(), out) })
		w.run(2 * time.Second)
		if (len(master.reached) == 1) != alive {
			t.Errorf("alive %v: %+v", alive, master.reached)
		}
	}
}

// TestRefresh is that entries whose packets the caller's rule does not report do not
// expire at the receiver before the sender.
func TestRefresh(t *testing.T) {
	eachWire(t, func(t *testing.T, w *world) {
		master, backup := w.node().sender(), w.node().receiver()
		w.run(time.Second)
		type flow struct {
			key   key
			every time.Duration
		}
		var flows []flow
		timeouts := []time.Duration{25 * time.Second, 60 * time.Second, 300 * time.Second, 900 * time.Second}
		for i := range 200 {
			c := conn(i)
			c.Timeout = timeouts[i%len(timeouts)]
			c.Expires = c.Timeout
			master.put(c)
			// A packet within any part of the timeout, up to just before its end.
			flows = append(flows, flow{keyOf(&c), time.Duration(float64(c.Timeout) * (0.01 + 0.98*w.rng.Float64()))})
		}
		for _, f := range flows {
			var packet func()
			packet = func() {
				e := master.table[f.key]
				e.at = w.now + e.conn.Timeout
				master.table[f.key] = e
				w.at(w.now+f.every, packet)
			}
			w.at(f.every, packet)
		}
		for w.now < time.Hour {
			w.run(5 * time.Second)
			for _, f := range flows {
				e, ok := backup.table[f.key]
				if !ok || e.at <= w.now {
					t.Fatalf("%v with a packet each %v of %v is missing after %v", f.key, f.every, e.conn.Timeout, w.now)
				}
				own := master.table[f.key]
				if late := e.at - own.at; late > master.send.walk.margin(master.clock(), master.send.config.Walk, &own.conn)+w.delay+2*time.Second {
					t.Fatalf("%v lives longer by %v", f.key, late)
				}
			}
		}
		// Each flow at most about twice in its timeout: 25 s in each pass.
		most := 0.0
		for i := range flows {
			most += float64(time.Hour) / float64(timeouts[i%4]) * 2.6
		}
		if n := master.send.Counts().Refreshes; float64(n) > most || n == 0 {
			t.Errorf("%d refreshes: want at most %.0f", n, most)
		}
	})
}

// TestSameSeedSameRun is that the machines are deterministic.
func TestSameSeedSameRun(t *testing.T) {
	run := func() (sent int, c Counts) {
		w := newWorld(t, 9, 0.05)
		master, backup := w.node().sender(), w.node().receiver()
		master.load(2*time.Second, 3)
		w.run(4 * time.Second)
		return w.sent, backup.receive.Counts()
	}
	sent, c := run()
	for range 3 {
		if s, d := run(); s != sent || c != d {
			t.Fatalf("%d datagrams and %+v, then %d and %+v", sent, c, s, d)
		}
	}
}

// TestEventsWinOverBulkCopies is that of entries that changed or were deleted while their
// copies of a bulk transfer were on the way.
func TestEventsWinOverBulkCopies(t *testing.T) {
	w := newWorld(t, 1, 0)
	master, backup := w.node(), w.node()
	for i := range 300 {
		c := conn(i)
		master.table[keyOf(&c)] = entry{c, w.now + c.Expires}
	}
	master.sender()
	lost := 0
	w.lose = func(d Datagram) bool {
		if bulk := kind(d.Bytes[4]) == kindData && d.Bytes[5]&dataBulk != 0; bulk {
			lost++
			return true
		}
		return false
	}
	backup.receiver()
	w.run(200 * time.Millisecond)
	if lost < 5 {
		t.Fatalf("%d datagrams of the transfer", lost)
	}
	for i := range 300 {
		c := conn(i)
		switch i % 3 {
		case 0:
			master.remove(keyOf(&c))
		case 1:
			c.State, c.InPackets = "FIN_WAIT", 7
			master.put(c)
		}
	}
	w.run(100 * time.Millisecond)
	if len(backup.table) != 0 {
		t.Errorf("%d entries are applied before those that precede them", len(backup.table))
	}
	w.lose = nil
	w.run(quiet)
	backup.same(master)
	if len(backup.table) != 200 {
		t.Errorf("%d entries", len(backup.table))
	}
}

// faulty fails in its second chunk.
type faulty struct {
	Cursor
	calls int
}

func (c *faulty) Next(entries []model.Connection) (int, error) {
	if c.calls++; c.calls == 2 {
		return 0, errors.New("cannot be read")
	}
	return c.Cursor.Next(entries)
}

func TestTableThatCannotBeRead(t *testing.T) {
	w := newWorld(t, 1, 0)
	master, backup := w.node(), w.node()
	for i := range 1000 {
		c := conn(i)
		master.table[keyOf(&c)] = entry{c, w.now + c.Expires}
	}
	read, passes := master.config.Table, 0
	master.config.Table = func() Cursor {
		if passes++; passes <= 2 {
			return &faulty{Cursor: read()}
		}
		return read()
	}
	master.sender()
	backup.receiver()
	w.run(900 * time.Millisecond)
	if backup.receive.State().Synced {
		t.Error("synced with a part of the table")
	}
	w.run(2 * time.Second)
	backup.same(master)
	if backup.count(EventSynced) != 1 {
		t.Errorf("events: %v", backup.log)
	}
}

// TestUnicast is that of destinations that are the other directors.
func TestUnicast(t *testing.T) {
	w := newWorld(t, 1, 0.05)
	nodes := []*node{w.node(), w.node(), w.node()}
	for _, n := range nodes {
		n.config.To = nil
		for _, other := range nodes {
			if other != n {
				n.config.To = append(n.config.To, other.addr)
			}
		}
	}
	nodes[0].sender()
	nodes[1].receiver()
	nodes[2].receiver()
	nodes[0].load(2*time.Second, 3)
	w.run(2*time.Second + quiet)
	nodes[1].same(nodes[0])
	nodes[2].same(nodes[0])
}

func TestConfig(t *testing.T) {
	good := newWorld(t, 1, 0).node().config
	for name, change := range map[string]func(c *Config){
		"short key":       func(c *Config) { c.Key = c.Key[:15] },
		"no destination":  func(c *Config) { c.To = nil },
		"no random":       func(c *Config) { c.Random = nil },
		"small datagrams": func(c *Config) { c.MaxDatagram = MinDatagram - 1 },
		"large datagrams": func(c *Config) { c.MaxDatagram = MaxDatagram + 1 },
		"small window":    func(c *Config) { c.Window = 31 },
		"large window":    func(c *Config) { c.Window = 513 },
		"small store":     func(c *Config) { c.Store = 1023 },
		"rate":            func(c *Config) { c.Rate = -1 },
	} {
		c := good
		change(&c)
		if _, err := NewSender(0, c); err == nil {
			t.Errorf("%s: accepted by a sender", name)
		}
		if _, err := NewReceiver(0, c); err == nil {
			t.Errorf("%s: accepted by a receiver", name)
		}
	}
}

// TestRolesMove is that of directors that take over from each other, orderly or not, of
// partitions, and of two masters for a while.
func TestRolesMove(t *testing.T) {
	eachWire(t, func(t *testing.T, w *world) {
		master, backups := w.node().sender(), []*node{w.node().receiver(), w.node().receiver()}
		master.load(time.Hour, 2)
		loss := w.loss
		for range 8 {
			w.run(time.Duration(w.rng.Int64N(int64(4 * time.Second))))
			i := w.rng.IntN(2)
			old, next := master, backups[i]
			switch w.rng.IntN(4) {
			case 0: // a planned move
				old.idle = true
				old.do(func(out *Output) { old.send.Close(old.clock(), out) })
				master, backups[i] = next.sender(), old.receiver()
			case 1: // the master dies, and comes back as a backup
				old.down = true
				master, backups[i] = next.sender(), old
				w.run(time.Duration(w.rng.Int64N(int64(3 * time.Second))))
				old.receiver()
			case 2: // two masters
				master, backups[i] = next.sender(), old
				w.run(time.Duration(w.rng.Int64N(int64(3 * time.Second))))
				old.receiver()
			case 3:
				w.loss = 1
				w.run(time.Duration(w.rng.Int64N(int64(15 * time.Second))))
				w.loss = loss
				continue
			}
			old.idle, master.idle = true, false
			master.load(time.Hour, 2)
		}
		w.run(time.Second)
		master.idle = true
		w.run(quiet)
		for _, b := range backups {
			b.same(master)
		}
	})
}
