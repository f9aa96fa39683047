// SPDX-License-Identifier: Apache-2.0

package vrrp

import (
	"cmp"
	"container/heap"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

var (
	simSeed   = flag.Uint64("seed", 0, "first seed of TestSimulation; 0: 1")
	simRounds = flag.Int("rounds", 0, "rounds of TestSimulation; 0: 60 for each of 40 seeds")
)

// event is what happens at a time.
type event struct {
	at   time.Duration
	turn uint64
	call func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(e[i].at, e[j].at), cmp.Compare(e[i].turn, e[j].turn)) < 0
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// world is a network of directors with two virtual routers each, in virtual time.
type world struct {
	t      *testing.T
	rng    *rand.Rand
	now    time.Duration
	events events
	turn   uint64
	nodes  []*director
	links  [3][3]bool // cut, from and to
	loss   float64
	delay  time.Duration // at most
	oneWay bool          // a link was cut in one direction
	owner  *director     // the last one that announced
	log    []string
	failed bool
	// stable: nothing may change any more.
	stable  bool
	overlap time.Duration // with two masters, since the last fault
	since   time.Duration // two masters since; 0: not
}

// director is a node.
type director struct {
	w         *world
	id        int
	config    Config
	machine   *Machine // nil: dead
	clock     time.Duration
	timer     uint64 // generation
	frozen    time.Duration
	paused    time.Duration
	inbox     []func()
	lease     time.Duration
	held      map[Address]bool
	syncTimer uint64
}

func (w *world) at(after time.Duration, call func()) {
	w.turn++
	heap.Push(&w.events, event{w.now + after, w.turn, call})
}

func (w *world) run(d time.Duration) {
	end := w.now + d
	for len(w.events) > 0 && w.events[0].at <= end && !w.failed {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.call()
		w.watch()
	}
	w.now = end
}

func (w *world) say(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%v: ", w.now)+fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) {
	if !w.failed {
		w.failed = true
		w.t.Errorf("%v: "+format, append([]any{w.now}, args...)...)
		for _, l := range w.log[max(0, len(w.log)-80):] {
			w.t.Log(l)
		}
	}
}

func simConfig(w *world, id int) Config {
	c := Config{
		Routers: []Router{
			{Device: "eth0", ID: 51, Source: nodeAddress(id), Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.200/24")}},
			{Device: "eth1", ID: 52, Source: netip.MustParseAddr(fmt.Sprintf("fe80::%d", 9-id)), Addresses: []netip.Prefix{
				netip.MustParsePrefix("fe80::200/64"), netip.MustParsePrefix("fd00::200/64"),
			}},
		},
		Others:        []Address{{"eth1", netip.MustParsePrefix("192.168.0.1/24")}},
		AnnounceAgain: 200 * time.Millisecond,
		Random:        w.rng.Uint64,
	}
	return c
}

func (d *director) time() time.Duration { return d.w.now + d.clock }

// start makes a process anew.
func (d *director) start() {
	m, err := New(d.config)
	if err != nil {
		d.w.t.Fatal(err)
	}
	d.machine, d.frozen, d.paused, d.inbox = m, 0, 0, nil
	d.call(func(out *Output) { m.Start(d.time(), out) })
}

// call calls the machine and does what it says.
func (d *director) call(f func(out *Output)) {
	var out Output
	f(&out)
	w := d.w
	for _, a := range out.Actions {
		switch a.Kind {
		case ActionLease:
			d.lease = 0
			if a.Until != 0 {
				d.lease = a.Until - d.clock
			}
		case ActionAdvertise:
			if d.lease <= w.now && a.Advertisement.Priority > 1 { // 1 is a reminder
				w.fail("director %d advertises without a lease", d.id)
			}
			d.send(a)
		case ActionTake:
			for _, x := range a.Addresses {
				d.held[x] = true
			}
		case ActionRelease:
			for _, x := range a.Addresses {
				delete(d.held, x)
			}
		case ActionAnnounce:
			if d.lease <= w.now {
				w.fail("director %d announces without a lease", d.id)
			}
			w.owner = d
		case ActionNotify:
			w.say("director %d: %v (%v), priority %d", d.id, a.State, a.Cause, a.Priority)
			if w.stable {
				w.fail("director %d is %v (%v) without a reason", d.id, a.State, a.Cause)
			}
			d.syncTimer++
			if a.State == Backup && d.machine != nil {
				d.synchronize(d.syncTimer)
			}
		case ActionMerge:
			if w.rng.IntN(3) > 0 {
				m := d.machine
				w.at(time.Duration(w.rng.Int64N(int64(d.config.Merge)*3/2)), func() {
					if d.machine == m && d.awake() {
						d.call(func(out *Output) { m.Merged(d.time(), out) })
					}
				})
			}
		}
	}
	if d.machine == nil {
		return
	}
	d.timer++
	if timer := d.timer; out.Next != 0 {
		late := time.Duration(w.rng.Int64N(int64(time.Millisecond)))
		w.at(max(0, out.Next-d.time())+late, func() {
			if timer == d.timer && d.machine != nil && d.awake() {
				d.call(func(out *Output) { d.machine.Tick(d.time(), out) })
			}
		})
	}
}

func (d *director) awake() bool { return d.w.now >= d.frozen && d.w.now >= d.paused }

// synchronize reports, after some time, that the master's table is here.
func (d *director) synchronize(generation uint64) {
	m := d.machine
	d.w.at(2*d.config.Interval, func() {
		if generation != d.syncTimer || d.machine != m {
			return
		}
		for _, x := range d.w.nodes {
			if x != d && x.machine != nil && x.awake() && x.machine.State() == Master && d.awake() && !d.w.links[x.id][d.id] && !d.w.links[d.id][x.id] {
				d.call(func(out *Output) { m.SetSynchronized(d.time(), true, out) })
			}
		}
		d.synchronize(generation)
	})
}

// send encodes an advertisement and delivers it to the others.
func (d *director) send(a Action) {
	w := d.w
	source, destination := d.config.Routers[a.Router].Source, Group4
	if a.Router == 1 {
		destination = Group6
	}
	b, err := a.Advertisement.Append(nil, source, destination)
	if err != nil {
		w.fail("director %d: %v", d.id, err)
		return
	}
	for _, to := range w.nodes {
		if to == d || w.links[d.id][to.id] || w.rng.Float64() < w.loss {
			continue
		}
		w.at(20*time.Microsecond+time.Duration(w.rng.Int64N(int64(w.delay))), func() {
			if to.machine == nil || w.now < to.frozen {
				return
			}
			receive := func() {
				var parsed Advertisement
				if r := Parse(b, Packet{source, destination, HopLimit}, to.config.Routers[a.Router].ID, false, &parsed); r != Accepted {
					w.fail("director %d refuses: %v", to.id, r)
				}
				to.call(func(out *Output) { to.machine.Receive(to.time(), a.Router, source, &parsed, out) })
			}
			if w.now < to.paused {
				to.inbox = append(to.inbox, receive)
			} else {
				receive()
			}
		})
	}
}

// wake ends a pause: first what has arrived, then the timer.
func (d *director) wake() {
	m := d.machine
	if m == nil || !d.awake() {
		return
	}
	inbox := d.inbox
	d.inbox = nil
	for _, receive := range inbox {
		receive()
	}
	d.call(func(out *Output) { m.Tick(d.time(), out) })
}

func (d *director) serves() bool { return d.lease > d.w.now && d.w.now >= d.frozen }

// watch is the invariants of each moment.
func (w *world) watch() {
	serving := 0
	for _, d := range w.nodes {
		if d.serves() {
			serving++
		}
		if d.machine == nil || !d.awake() {
			continue
		}
		master := d.machine.State() == Master
		want := 0
		if master {
			want = len(d.machine.addresses)
		}
		if len(d.held) != want {
			w.fail("director %d is %v and has %d addresses", d.id, d.machine.State(), len(d.held))
		}
		if !master && d.serves() {
			w.fail("director %d is %v and serves", d.id, d.machine.State())
		}
		if master && w.stable && !d.serves() {
			w.fail("director %d is master without a fresh lease", d.id)
		}
	}
	if w.stable && serving != 1 {
		w.fail("%d directors serve", serving)
	}
	switch {
	case serving < 2:
		w.since = 0
	case w.since == 0:
		w.since = w.now
	default:
		w.overlap = max(w.overlap, w.now-w.since)
	}
}

// fault is a random one.
func (w *world) fault(interval time.Duration) {
	d := w.nodes[w.rng.IntN(len(w.nodes))]
	if d.machine == nil {
		w.say("start of %d", d.id)
		d.start()
		return
	}
	if !d.awake() {
		return
	}
	m := d.machine
	span := time.Duration(w.rng.Int64N(int64(8 * interval)))
	switch n := w.rng.IntN(14); n {
	case 0: // killed: its lease and addresses stay
		w.say("director %d is killed", d.id)
		d.machine = nil
		d.timer++
	case 1:
		w.say("director %d shuts down", d.id)
		d.call(func(out *Output) { m.Shutdown(d.time(), out) })
		d.machine = nil
		d.timer++
	case 2, 3:
		w.say("director %d freezes for %v", d.id, span)
		d.frozen = w.now + span
		w.at(span, d.wake)
	case 4, 5:
		w.say("director %d pauses for %v", d.id, span)
		d.paused = w.now + span
		w.at(span, d.wake)
	case 6, 7:
		to := w.rng.IntN(len(w.nodes))
		w.links[d.id][to] = true
		w.oneWay = w.oneWay || n == 7 // an announcement can be needed that only AnnounceEvery makes
		if n == 6 {
			w.links[to][d.id] = true
		}
		w.say("links of %d and %d: %v", d.id, to, w.links)
	case 8:
		w.links = [3][3]bool{}
		w.say("links repaired")
	case 9:
		p := uint8(w.rng.IntN(256))
		w.say("director %d has priority %d", d.id, p)
		d.call(func(out *Output) { m.SetPriority(d.time(), p, out) })
	case 10:
		faulty := !m.memory.Faulty
		w.say("director %d faulty: %v", d.id, faulty)
		d.call(func(out *Output) { m.SetFault(d.time(), faulty, out) })
	case 11:
		gave := false
		d.call(func(out *Output) { gave = m.GiveUp(d.time(), out) })
		to := w.nodes[w.rng.IntN(len(w.nodes))]
		if w.say("director %d gives up to %d: %v", d.id, to.id, gave); gave && to != d {
			w.at(time.Duration(w.rng.Int64N(int64(2*interval))), func() {
				if to.machine != nil && to.awake() {
					to.call(func(out *Output) { to.machine.Take(to.time(), out) })
				}
			})
		}
	case 12:
		w.reload(d, interval)
	case 13:
		if w.rng.IntN(2) == 0 {
			w.upgrade(d)
		} else {
			w.bridge(d, 3*interval, time.Duration(w.rng.Int64N(int64(6*interval))))
		}
	}
}

// bridge has others wait for a longer interval, and then replaces the process, which takes a
// while.
func (w *world) bridge(d *director, interval, pause time.Duration) {
	m := d.machine
	ready := false
	if d.awake() {
		d.call(func(out *Output) { ready = m.Bridge(d.time(), interval, out) })
	}
	if !ready {
		w.at(d.config.Interval/4, func() {
			if d.machine == m {
				w.bridge(d, interval, pause)
			}
		})
		return
	}
	w.say("director %d: bridged, upgrade within %v", d.id, pause)
	d.paused = w.now + pause
	w.at(pause, func() {
		if d.machine == m && d.awake() {
			w.upgrade(d)
			d.wake()
		}
	})
}

// reload changes addresses and interval, and must not change the state.
func (w *world) reload(d *director, interval time.Duration) {
	c := d.config
	c.Priority = d.machine.memory.Priority
	c.Interval = interval * time.Duration(1+w.rng.IntN(2))
	c.Others = c.Others[:1:1]
	if w.rng.IntN(2) == 0 {
		c.Others = append(c.Others, Address{"eth1", netip.MustParsePrefix("192.168.7.1/24")})
	}
	before := d.machine.State()
	d.config = c
	d.call(func(out *Output) {
		if err := d.machine.Reconfigure(d.time(), c, out); err != nil {
			w.fail("reload: %v", err)
		}
	})
	w.say("director %d: reload, %v", d.id, c.Interval)
	if after := d.machine.State(); after != before {
		w.fail("a reload changed director %d from %v to %v", d.id, before, after)
	}
}

// upgrade replaces the process.
func (w *world) upgrade(d *director) {
	w.say("director %d: upgrade", d.id)
	s := d.machine.Snapshot()
	text, err := json.Marshal(s)
	if err != nil {
		w.t.Fatal(err)
	}
	var again Snapshot
	if err := json.Unmarshal(text, &again); err != nil {
		w.t.Fatal(err)
	}
	c := d.config
	c.Priority = s.Priority
	d.call(func(out *Output) {
		if d.machine, err = Restore(d.time(), c, again, out); err != nil {
			w.t.Fatal(err)
		}
	})
	d.syncTimer++
	d.synchronize(d.syncTimer)
	if after := d.machine.State(); after != s.State {
		w.fail("an upgrade changed director %d from %v to %v", d.id, s.State, after)
	}
}

// settle ends all faults, waits, and looks for the one master that it has to be.
func (w *world) settle(interval time.Duration) {
	w.say("settles")
	w.links = [3][3]bool{}
	loss := w.loss
	w.loss = 0
	for _, d := range w.nodes {
		if d.machine == nil {
			d.start()
		} else if w.at(0, d.wake); !d.awake() {
			d.frozen, d.paused = 0, 0
		}
		m := d.machine
		d.call(func(out *Output) { m.SetFault(d.time(), false, out) })
		m.Reclaim()
	}
	w.run(10 * interval) // messages that were on their way, leases of the dead
	w.overlap, w.since = 0, 0
	w.run(45 * interval)
	// An interval can be 2 x interval, after a reload; a message takes up to w.delay.
	if most := 2*(2*interval+w.delay+time.Millisecond) + w.nodes[0].config.Merge; w.overlap > most {
		w.fail("two masters for %v, want at most %v", w.overlap, most)
	}
	w.stable = true
	w.run(15 * interval)
	if w.stable = false; w.failed {
		return
	}
	best := w.nodes[0]
	for _, d := range w.nodes[1:] {
		if d.machine.memory.Priority > best.machine.memory.Priority || d.machine.memory.Priority == best.machine.memory.Priority && d.id > best.id {
			best = d
		}
	}
	equal := slices.ContainsFunc(w.nodes, func(d *director) bool {
		return d != best && d.machine.memory.Priority == best.machine.memory.Priority
	})
	if !best.config.NoPreempt && !equal && best.machine.State() != Master {
		w.fail("director %d is %v, with the highest priority", best.id, best.machine.State())
	}
	master := w.nodes[slices.IndexFunc(w.nodes, func(d *director) bool { return d.machine.State() == Master })]
	if w.oneWay { // a minute later its announcement repairs that (Config.AnnounceEvery)
		w.owner = master
	}
	if w.owner != master {
		w.fail("the last announcement is not the master's")
	}
	w.loss, w.oneWay = loss, false
}

// TestSimulation has faults at random, many at a time, and calm between. The seed of a
// failure repeats it.
func TestSimulation(t *testing.T) {
	first, seeds, rounds := uint64(1), 40, 60
	if *simSeed != 0 {
		first, seeds = *simSeed, 1
	}
	if *simRounds != 0 {
		rounds = *simRounds
	}
	var became, stalls, others, bounds uint64
	for seed := first; seed < first+uint64(seeds); seed++ {
		w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 18)), now: time.Hour}
		w.delay = time.Duration(1+w.rng.IntN(4)) * time.Millisecond
		w.loss = []float64{0, 0.02, 0.2}[w.rng.IntN(3)]
		interval := time.Duration(1+w.rng.IntN(10)) * 10 * time.Millisecond
		shape := Config{Interval: interval, NoPreempt: w.rng.IntN(3) == 0, AwaitSync: w.rng.IntN(2) == 0}
		if w.rng.IntN(2) == 0 {
			shape.PreemptDelay, shape.Hold = 2*interval, 5*interval
		}
		if w.rng.IntN(2) == 0 {
			shape.Merge = 3 * interval
		}
		for id := range 2 + w.rng.IntN(2) {
			c := simConfig(w, id)
			c.Interval, c.NoPreempt, c.AwaitSync, c.PreemptDelay, c.Hold, c.Merge = shape.Interval, shape.NoPreempt, shape.AwaitSync, shape.PreemptDelay, shape.Hold, shape.Merge
			c.Priority = uint8(1 + w.rng.IntN(255))
			d := &director{w: w, id: id, config: c, held: map[Address]bool{}, clock: time.Duration(w.rng.Int64N(int64(time.Hour)))}
			w.nodes = append(w.nodes, d)
		}
		for range rounds {
			for range w.rng.IntN(8) {
				w.fault(interval)
				w.run(time.Duration(w.rng.Int64N(int64(6 * interval))))
			}
			w.settle(interval)
			if w.failed {
				t.Fatalf("seed %d, %+v", seed, shape)
			}
		}
		for _, d := range w.nodes {
			c := d.machine.Counts()
			became, stalls, others, bounds = became+c.Became, stalls+c.Stalls, others+c.OtherMasters, bounds+c.MergeBounds
		}
	}
	t.Logf("%d seeds; of the last processes: %d times master, %d stalls, %d other masters, %d merges at their bound", seeds, became, stalls, others, bounds)
	if *simSeed == 0 && (became == 0 || stalls == 0 || others == 0) {
		t.Error("nothing happened")
	}
}
