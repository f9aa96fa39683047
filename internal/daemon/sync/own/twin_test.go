// SPDX-License-Identifier: Apache-2.0

package own

import (
	"io"
	"net/netip"
	"slices"
	"time"

	"imbang/internal/model"
)

// twin is a director of a pair with a table as the data plane has it (bpf/told.h, backup.h):
// it knows which entries are replicas, and when the last packet came for the others.
type twin struct {
	n       *node
	pair    *Pair
	entries map[key]*twinEntry
	kept    int // entries that both have with another server
	beaten  int
	life    int                 // of the machine
	ring    []func(out *Output) // events that nobody has read
	stalled bool                // nobody reads them
	had     bool                // the table has had all of the other one
}

type twinEntry struct {
	conn    model.Connection
	ends    time.Duration // when it expires
	last    time.Duration // its last packet, unless it is a replica
	replica bool
}

// twins are the directors of a pair.
func twins(w *world) (a, b *twin) {
	one, two := w.node(), w.node()
	one.config.To, two.config.To = to(two.addr), to(one.addr)
	return newTwin(one), newTwin(two)
}

func newTwin(n *node) *twin {
	t := &twin{n: n, entries: map[key]*twinEntry{}}
	n.twin = t
	n.config.Table = func() Cursor { return t.cursor() }
	return t
}

// start starts the daemon; the table stays.
func (t *twin) start() *twin {
	t.n.config.Replicated = t.had
	p, err := NewPair(t.n.clock(), t.n.config)
	if err != nil {
		t.n.w.t.Fatal(err)
	}
	t.pair, t.n.down = p, false
	t.n.do(func(out *Output) { p.Tick(t.n.clock(), out) })
	t.life++
	life := t.life
	var expire func()
	expire = func() {
		if t.life == life {
			t.expire()
			t.n.w.at(t.n.w.now+2*time.Second, expire)
		}
	}
	expire()
	return t
}

// stop stops it, as kill -9; the table stays unless it is lost with the machine.
func (t *twin) stop(lost bool) {
	t.n.down = true
	t.life++
	t.ring = nil
	t.had = !lost && t.pair.Receiver.HadAll()
	if lost {
		clear(t.entries)
	}
}

// told is an entry as events and listings have it.
func (t *twin) told(e *twinEntry) model.Connection {
	c := e.conn
	c.Expires, c.Idle = max(0, e.ends-t.n.w.now), 0
	c.Flags &^= model.ConnReplica
	if e.replica {
		c.Flags |= model.ConnReplica
	}
	return c
}

func (t *twin) update(e *twinEntry) {
	told := t.told(e)
	t.event(func(out *Output) { t.pair.Sender.Update(t.n.clock(), []model.Connection{told}, out) })
}

// event is one that the ring has; it is read at once, unless nobody reads.
func (t *twin) event(call func(out *Output)) {
	t.ring = append(t.ring, call)
	if !t.stalled {
		t.drain()
	}
}

// drain reads all that the ring has.
func (t *twin) drain() {
	for len(t.ring) > 0 {
		call := t.ring[0]
		t.ring = t.ring[1:]
		t.n.do(call)
	}
	now := t.n.clock()
	t.n.do(func(out *Output) { t.pair.Sender.Drained(now, now, out) })
}

func (t *twin) end(k key) {
	e := t.entries[k]
	delete(t.entries, k)
	t.ended(t.told(e))
}

func (t *twin) ended(c model.Connection) {
	t.event(func(out *Output) { t.pair.Sender.Delete(t.n.clock(), []model.Connection{c}, out) })
}

// packet is one of a client: it opens a connection, or moves it to a state.
func (t *twin) packet(c model.Connection) {
	k := keyOf(&c)
	e := t.entries[k]
	news := e == nil || e.conn.State != c.State
	if e == nil {
		e = &twinEntry{conn: c}
		t.entries[k] = e
	}
	e.conn.State, e.conn.Timeout = c.State, c.Timeout
	e.last, e.ends, e.replica = t.n.w.now, t.n.w.now+c.Timeout, false
	if news {
		t.update(e)
	}
}

func (t *twin) expire() {
	var over []key
	for k, e := range t.entries {
		if e.ends <= t.n.w.now {
			over = append(over, k)
		}
	}
	slices.SortFunc(over, key.less)
	for _, k := range over {
		t.end(k)
	}
}

func (t *twin) keys() (keys []key) {
	for k := range t.entries {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, key.less)
	return keys
}

// apply is the data plane's part, Merge and Withdraw.
func (t *twin) apply(changes []Change) {
	now := t.n.w.now
	for _, x := range changes {
		c := x.Conn
		k := keyOf(&c)
		e := t.entries[k]
		copied := c.Flags&model.ConnReplica != 0
		ahead := -time.Hour
		if e != nil && !e.replica {
			ahead = e.last - (now - c.Idle)
		}
		switch {
		case x.Delete:
			if e != nil && e.conn.RealServer == c.RealServer && ahead <= lastSlack {
				delete(t.entries, k)
				told := t.told(e)
				t.later(func() { t.ended(told) })
			}
			continue
		case e != nil && copied, e == nil && x.Known:
			continue
		case e != nil && e.conn.RealServer != c.RealServer:
			if ahead >= -lastSlack {
				t.kept++
				continue
			}
			if !e.replica {
				t.beaten++
			}
		case ahead > lastSlack:
			continue
		}
		c.Flags &^= model.ConnReplica
		e = &twinEntry{conn: c, ends: now + c.Expires, replica: true}
		e.conn.Timeout = 900 * time.Second
		t.entries[k] = e
		t.later(func() { t.update(e) })
	}
}

// later calls after what is being done: the events of what was applied come by a ring.
func (t *twin) later(call func()) {
	life := t.life
	t.n.w.at(t.n.w.now, func() {
		if t.life == life {
			call()
		}
	})
}

type twinCursor struct {
	t    *twin
	keys []key
}

func (t *twin) cursor() Cursor { return &twinCursor{t, t.keys()} }

func (c *twinCursor) Close() {}

func (c *twinCursor) Next(entries []model.Connection) (n int, err error) {
	for n < len(entries) && len(c.keys) > 0 {
		if e := c.t.entries[c.keys[0]]; e != nil {
			entries[n] = c.t.told(e)
			n++
		}
		c.keys = c.keys[1:]
	}
	if len(c.keys) == 0 {
		return n, io.EOF
	}
	return n, nil
}

// load lets clients open, use and end connections of a range of numbers until a time. Each of
// them sends to one director.
func (t *twin) load(until time.Duration, first, numbers, each int) {
	life := t.life
	var open []model.Connection
	var step func()
	step = func() {
		if t.n.w.now >= until || t.life != life {
			return
		}
		for range each {
			switch r := t.n.w.rng.IntN(10); {
			case r < 5:
				c := conn(first + t.n.w.rng.IntN(numbers))
				open = append(open, c)
				t.packet(c)
			case len(open) == 0:
			case r < 8:
				c := open[t.n.w.rng.IntN(len(open))]
				if t.entries[keyOf(&c)] != nil {
					c.State = []string{"ESTABLISHED", "FIN_WAIT", "TIME_WAIT"}[t.n.w.rng.IntN(3)]
					t.packet(c)
				}
			default:
				i := t.n.w.rng.IntN(len(open))
				k := keyOf(&open[i])
				open = slices.Delete(open, i, i+1)
				if t.entries[k] != nil {
					t.end(k)
				}
			}
		}
		t.n.w.at(t.n.w.now+time.Millisecond, step)
	}
	t.n.w.at(t.n.w.now, step)
}

// missing are entries of packets at one director that the other one does not have, or has
// with another server or state; extra are those that neither had packets of.
func missing(t, other *twin) (list []key) {
	for _, k := range t.keys() {
		e, there := t.entries[k], other.entries[k]
		if !e.replica && (there == nil || there.conn.RealServer != e.conn.RealServer || there.replica && there.conn.State != e.conn.State) {
			list = append(list, k)
		}
	}
	return list
}

// wantUnion fails unless each director has what packets came for at either, and, if exact,
// nothing else.
func wantUnion(a, b *twin, exact bool, when string) {
	w := a.n.w
	w.t.Helper()
	for _, x := range [][2]*twin{{a, b}, {b, a}} {
		if list := missing(x[0], x[1]); len(list) > 0 {
			w.t.Fatalf("%s (%v): %d of %d entries of %v are missing at %v, as %v: %+v", when, w.now, len(list), len(x[0].entries), x[0].n.addr, x[1].n.addr, list[0], x[1].pair.Receiver.State())
		}
	}
	if !exact {
		return
	}
	for _, x := range [][2]*twin{{a, b}, {b, a}} {
		for _, k := range x[0].keys() {
			if x[1].entries[k] == nil {
				w.t.Fatalf("%s (%v): %v is at %v alone (replica %v)", when, w.now, k, x[0].n.addr, x[0].entries[k].replica)
			}
		}
	}
}

func to(a ...netip.AddrPort) []netip.AddrPort { return a }
