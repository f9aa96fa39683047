// SPDX-License-Identifier: Apache-2.0

package own

import (
	"container/heap"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"imbang/internal/model"
)

// key identifies an entry in the tests' tables.
type key struct {
	protocol        model.Protocol
	client, virtual netip.AddrPort
	template        bool
	data            string
	invalid         netip.AddrPort
}

func keyOf(c *model.Connection) key {
	k := key{c.Protocol, c.Client, c.Virtual, c.Template, c.EngineData, netip.AddrPort{}}
	if c.Flags&model.ConnInvalid != 0 {
		k.invalid = c.RealServer
	}
	return k
}

func (k key) less(o key) int {
	if k.template != o.template { // templates first
		if k.template {
			return -1
		}
		return 1
	}
	if c := k.client.Compare(o.client); c != 0 {
		return c
	}
	if c := k.virtual.Compare(o.virtual); c != 0 {
		return c
	}
	if c := strings.Compare(k.data, o.data); c != 0 {
		return c
	}
	return k.invalid.Compare(o.invalid)
}

// entry is one with the time of its expiry.
type entry struct {
	conn model.Connection
	at   time.Duration
}

type table map[key]entry

// cursor reads a table as it is at each call of Next.
type cursor struct {
	keys []key
	t    table
	now  func() time.Duration
}

func (t table) cursor(now func() time.Duration) *cursor {
	c := &cursor{t: t, now: now}
	for k := range t {
		c.keys = append(c.keys, k)
	}
	slices.SortFunc(c.keys, key.less)
	return c
}

func (c *cursor) Close() {}

func (c *cursor) Next(entries []model.Connection) (n int, err error) {
	for n < len(entries) && len(c.keys) > 0 {
		if e, ok := c.t[c.keys[0]]; ok {
			entries[n] = e.conn
			entries[n].Expires = max(0, e.at-c.now())
			n++
		}
		c.keys = c.keys[1:]
	}
	if len(c.keys) == 0 {
		return n, io.EOF
	}
	return n, nil
}

// event is what happens at a time.
type event struct {
	at   time.Duration
	turn uint64
	call func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].turn < e[j].turn
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// group is where a sender's datagrams for all go.
var group = netip.MustParseAddrPort("224.0.0.81:8790")

// world is a network of directors in virtual time.
type world struct {
	t      testing.TB
	rng    *rand.Rand
	now    time.Duration
	events events
	turn   uint64
	nodes  []*node
	loss   float64
	twice  float64
	delay  time.Duration // at most, beside
	far    time.Duration // at least
	wire   func(from *node, d Datagram)
	lose   func(d Datagram) bool
	sent   int
}

// node is a director.
type node struct {
	w       *world
	addr    netip.AddrPort
	offset  time.Duration // of its clock
	table   table
	send    *Sender
	receive *Receiver
	twin    *twin  // of a pair, instead of both
	next    uint64 // generation of its timer
	log     []Event
	reached []Reached
	config  Config
	down    bool          // it neither sends nor receives
	slow    time.Duration // between two datagrams that it can read
	free    time.Duration
	queued  int
	dropped int
	idle    bool // the load has ended
}

func newWorld(t testing.TB, seed uint64, loss float64) *world {
	return &world{t: t, rng: rand.New(rand.NewPCG(seed, 7)), loss: loss, twice: loss / 2, delay: 3 * time.Millisecond}
}

var testKey = []byte("0123456789abcdef0123456789abcdef")

func (w *world) node() *node {
	n := &node{w: w, table: table{}, down: true}
	n.addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, 0, byte(len(w.nodes) + 1)}), Port)
	n.offset = time.Duration(w.rng.Int64N(int64(2*time.Hour))) + time.Hour
	n.config = Config{
		Group: 5, Key: testKey, To: []netip.AddrPort{group}, Random: w.rng.Uint64,
		Table: func() Cursor { return n.table.cursor(func() time.Duration { return w.now }) },
	}
	w.nodes = append(w.nodes, n)
	return n
}

func (n *node) clock() time.Duration { return n.w.now + n.offset }

// sender starts a new sender on a node; its table stays.
func (n *node) sender() *node {
	s, err := NewSender(n.clock(), n.config)
	if err != nil {
		n.w.t.Fatal(err)
	}
	n.send, n.receive, n.down = s, nil, false
	n.do(func(out *Output) { s.Tick(n.clock(), out) })
	return n
}

// receiver starts a new receiver on a node; its table stays.
func (n *node) receiver() *node {
	r, err := NewReceiver(n.clock(), n.config)
	if err != nil {
		n.w.t.Fatal(err)
	}
	n.receive, n.send, n.down = r, nil, false
	n.do(func(out *Output) { r.Tick(n.clock(), out) })
	return n
}

func (w *world) at(at time.Duration, call func()) {
	w.turn++
	heap.Push(&w.events, event{max(at, w.now), w.turn, call})
}

// run lets the time pass.
func (w *world) run(d time.Duration) {
	end := w.now + d
	for len(w.events) > 0 && w.events[0].at <= end {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.call()
	}
	w.now = end
}

// do calls a machine, and does what it puts out.
func (n *node) do(call func(*Output)) {
	if n.down {
		return
	}
	var out Output
	call(&out)
	if n.twin != nil {
		n.twin.apply(out.Apply)
		out.Apply = nil
		if out.Drain && !n.twin.stalled {
			n.twin.later(n.twin.drain)
		}
	}
	for _, c := range out.Apply {
		k := keyOf(&c.Conn)
		if c.Delete {
			delete(n.table, k)
			continue
		}
		if c.Conn.Control != nil {
			control := *c.Conn.Control
			c.Conn.Control = &control
		}
		n.table[k] = entry{c.Conn, n.w.now + c.Conn.Expires}
	}
	for _, d := range out.Datagrams {
		n.w.transmit(n, d)
	}
	n.log = append(n.log, out.Events...)
	n.reached = append(n.reached, out.Reached...)
	n.next++
	timer := n.next
	n.w.at(out.Next-n.offset, func() {
		if n.next == timer {
			n.do(func(out *Output) { n.tick(out) })
		}
	})
}

func (n *node) tick(out *Output) {
	if n.twin != nil {
		n.twin.pair.Tick(n.clock(), out)
	} else if n.send != nil {
		n.send.Tick(n.clock(), out)
	} else {
		n.receive.Tick(n.clock(), out)
	}
}

// transmit carries a datagram, or not, to one or all other nodes.
func (w *world) transmit(from *node, d Datagram) {
	w.sent++
	if w.wire != nil {
		w.wire(from, d)
	}
	for _, to := range w.nodes {
		if to == from || d.To != group && d.To != to.addr {
			continue
		}
		if to.down || w.rng.Float64() < w.loss || w.lose != nil && w.lose(d) {
			continue
		}
		copies := 1
		if w.rng.Float64() < w.twice {
			copies = 2
		}
		for range copies {
			w.deliver(from.addr, to, slices.Clone(d.Bytes), w.now+w.far+time.Duration(w.rng.Int64N(int64(w.delay))+1000))
		}
	}
}

func (w *world) deliver(from netip.AddrPort, to *node, b []byte, at time.Duration) {
	if to.slow > 0 { // a queue of 64 datagrams
		if to.queued == 64 {
			to.dropped++
			return
		}
		to.queued++
		at = max(at, to.free+to.slow)
		to.free = at
	}
	w.at(at, func() {
		if to.slow > 0 {
			to.queued--
		}
		to.do(func(out *Output) {
			if to.twin != nil {
				to.twin.pair.Receive(to.clock(), from, b, out)
			} else if to.send != nil {
				to.send.Receive(to.clock(), from, b, out)
			} else {
				to.receive.Receive(to.clock(), from, b, out)
			}
		})
	})
}

// conn is the connection of a number.
func conn(i int) model.Connection {
	server := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 2, 0, byte(1 + i%7)}), 8080)
	virtual := netip.MustParseAddrPort("10.9.0.1:80")
	return model.Connection{
		Protocol: model.TCP, State: "ESTABLISHED", Expires: 900 * time.Second, Timeout: 900 * time.Second,
		Client:  netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), uint16(1024+i%60000)),
		Virtual: virtual, Server: server, RealServer: server, Service: model.AddrKey(model.TCP, virtual), InPackets: 3,
	}
}

// put enters or updates an entry at a master, and gives it to its sender.
func (n *node) put(c model.Connection) {
	n.table[keyOf(&c)] = entry{c, n.w.now + c.Expires}
	n.do(func(out *Output) { n.send.Update(n.clock(), []model.Connection{c}, out) })
}

func (n *node) remove(k key) {
	c := n.table[k].conn
	delete(n.table, k)
	n.do(func(out *Output) { n.send.Delete(n.clock(), []model.Connection{c}, out) })
}

// load changes the master's table at random, once a millisecond, up to a time.
func (n *node) load(until time.Duration, each int) {
	keys := n.table.cursor(n.clock).keys
	states := []string{"ESTABLISHED", "FIN_WAIT", "TIME_WAIT", "SYN_RECV"}
	var step func()
	send := n.send
	step = func() {
		if n.w.now >= until || n.down || n.idle || n.send != send {
			return
		}
		for range each {
			switch r := n.w.rng.IntN(10); {
			case r < 5:
				c := conn(n.w.rng.IntN(1 << 20))
				keys = append(keys, keyOf(&c))
				n.put(c)
			case r < 7 && len(keys) > 0:
				if e, ok := n.table[keys[n.w.rng.IntN(len(keys))]]; ok {
					e.conn.State = states[n.w.rng.IntN(len(states))]
					n.put(e.conn)
				}
			case len(keys) > 0:
				i := n.w.rng.IntN(len(keys))
				k := keys[i]
				keys = append(keys[:i], keys[i+1:]...)
				if _, ok := n.table[k]; ok {
					n.remove(k)
				}
			}
		}
		n.w.at(n.w.now+time.Millisecond, step)
	}
	n.w.at(n.w.now, step)
}

// same fails unless a node has what another one has.
func (n *node) same(as *node) {
	n.w.t.Helper()
	wrong := 0
	show := func(format string, args ...any) {
		n.w.t.Helper()
		if wrong++; wrong <= 5 {
			n.w.t.Errorf(format, args...)
		}
	}
	for k, e := range as.table {
		got, ok := n.table[k]
		if !ok {
			show("missing: %v", k)
			continue
		}
		if d := difference(got.conn, e.conn); d != "" {
			show("%v: %s", k, d)
		}
		if got.at < e.at-5*time.Millisecond {
			show("%v expires %v early", k, e.at-got.at)
		}
	}
	for k := range n.table {
		if _, ok := as.table[k]; !ok {
			show("too much: %v", k)
		}
	}
	if wrong > 0 {
		n.w.t.Fatalf("%d entries of %d are wrong (at %v, %d are there; %+v)", wrong, len(as.table), n.w.now, len(n.table), n.receive.State())
	}
}

// difference is what is not the same in two entries, but for what does not travel and the
// expiry.
func difference(got, want model.Connection) string {
	for _, c := range []*model.Connection{&got, &want} {
		c.Expires, c.Idle, c.Connections = 0, 0, 0
		if !c.Template {
			c.Timeout = 0
		}
	}
	controls := [2]string{}
	for i, c := range []*model.Connection{&got, &want} {
		if c.Control != nil {
			controls[i] = fmt.Sprint(*c.Control)
			c.Control = nil
		}
	}
	if got != want || controls[0] != controls[1] {
		return fmt.Sprintf("got %+v %s, want %+v %s", got, controls[0], want, controls[1])
	}
	return ""
}

func (n *node) count(kind EventKind) (times int) {
	for _, e := range n.log {
		if e.Kind == kind {
			times++
		}
	}
	return times
}
