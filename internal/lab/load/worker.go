// SPDX-License-Identifier: Apache-2.0

package load

import (
	"math"
	"net/netip"
	"sync/atomic"
	"time"
)

// burst is how many late arrivals are issued between two looks at epoll, so
// that catching up does not inflate the times of replies already waiting.
const burst = 4

// look is the longest a client sleeps before it looks for a cancelled run.
const look = 50 * time.Millisecond

// gauge is what a running client shows of itself.
type gauge struct {
	scheduled, issued, replies, lost, open atomic.Int64
}

// shared is what the clients of a run have in common.
type shared struct {
	stop   atomic.Bool
	crowd  crowd
	odds   odds
	window window
}

func newShared(p Plan) *shared {
	s := &shared{odds: newOdds(p)}
	s.window.open(p)
	s.crowd.left.Store(math.MaxInt64)
	if p.Connections > 0 {
		s.crowd.left.Store(int64(p.Connections))
	}
	return s
}

// worker is one client: one locked thread, its sockets, its part of the
// schedule. Nothing it writes is shared but gauge, stop and, in a closed
// loop, how many requests are left and the window's end.
type worker struct {
	plan    Plan
	family  int
	targets []*sockaddr
	sources []*sockaddr
	turn    int32 // the next source

	base   time.Time // the run's beginning
	stop   *atomic.Bool
	window *window
	gauge  gauge

	table    timetable
	menu     *menu
	over     bool  // nothing more is to be issued
	deadline int64 // nominal end plus grace: unissued after it is lost

	poller    *poller
	slab      slab
	answers   queue // connecting and awaiting, deadline Timeout
	lingerers queue // deadline Linger
	pool      pool
	buf       []byte
	names     *names
	tally     *tally
	eager     eagerness

	precedence bool // its thread comes before others
	ports      int  // usable local ports, per source
	cpu        cpuTime
	cpuIssuing cpuTime // until the last arrival was issued
	issuingNS  int64   // when that was
	endNS      int64   // when the last connection ended
}

// newWorker prepares client me on the calling thread, which is already in its
// namespace.
func newWorker(p Plan, me int, s *shared) (*worker, error) {
	poller, err := newPoller()
	if err != nil {
		return nil, err
	}
	w := &worker{
		plan: p, family: family(p.Target.Addr()), stop: &s.stop, window: &s.window,
		poller: poller, answers: newQueue(), lingerers: newQueue(), pool: newPool(len(p.Targets)),
		buf: make([]byte, 64<<10), names: newNames(p.ServerHeader), tally: newTally(), ports: localPorts(),
	}
	w.tally.slots = newSlots(p)
	w.menu = newMenu(&w.plan, me, s.odds)
	if p.named {
		w.tally.named = newNamed(w.menu.labels)
	}
	if p.Concurrency > 0 {
		w.table, w.deadline = newUsers(p, me, &s.crowd), math.MaxInt64
	} else {
		w.table, w.deadline = newDeal(p, me), nominalEnd(p)+int64(p.Grace)
	}
	for _, t := range p.Targets {
		w.targets = append(w.targets, newSockaddr(t))
	}
	for _, s := range p.Clients[me].Sources {
		w.sources = append(w.sources, newSockaddr(netip.AddrPortFrom(s, 0)))
	}
	return w, nil
}

// now is the run's clock, monotonic, in ns; below 0 before the beginning.
func (w *worker) now() int64 { return int64(time.Since(w.base)) }

// run drives the client until every arrival has its end or the run is
// cancelled.
func (w *worker) run(base time.Time) error {
	w.base = base
	defer w.finish(threadTime())
	for !w.stop.Load() {
		w.issueDue()
		now := w.now()
		w.expire(now)
		w.publish()
		if w.over && w.slab.open == w.pool.size {
			return nil
		}
		events, err := w.poller.wait(w.pause(now))
		if err != nil {
			return err
		}
		for i := range events {
			w.handle(w.slab.at(events[i].Fd), events[i].Events)
		}
	}
	return nil
}

// issueDue sends the requests that are due, a burst at most. When the grace
// is over it gives up what is left, counting it.
func (w *worker) issueDue() {
	for range burst {
		now := w.now()
		at, more := w.table.peek(now)
		if !more {
			w.issuedAll()
			return
		}
		if at > now {
			return
		}
		if now > w.deadline {
			w.giveUp()
			return
		}
		if a, ok := w.table.take(); ok {
			w.issue(a, now)
		}
	}
}

// issuedAll takes the time of the last issue, once.
func (w *worker) issuedAll() {
	if !w.over {
		w.over = true
		w.issuingNS, w.cpuIssuing = w.now(), threadTime()
	}
}

// giveUp counts every arrival left as lost by the client.
func (w *worker) giveUp() {
	w.abandon(math.MaxInt64, func(int32) { w.tally.loss.Client.Unissued++ })
	w.issuedAll()
}

// abandon counts the arrivals due until a time, which nobody will issue.
func (w *worker) abandon(until int64, count func(name int32)) {
	for at, more := w.table.peek(0); more && at <= until; at, more = w.table.peek(0) {
		a, ok := w.table.take()
		if !ok || !a.counted {
			continue
		}
		w.menu.choose(&a)
		w.tally.schedule(&a, w.menu.names[a.request])
		count(w.menu.names[a.request])
	}
}

// pause is how long nothing is due: until the next arrival or deadline.
func (w *worker) pause(now int64) time.Duration {
	until := now + int64(look)
	if at, more := w.table.peek(now); more {
		until = min(until, at)
	}
	if c := w.answers.first(&w.slab); c != nil {
		until = min(until, c.deadline)
	}
	if c := w.lingerers.first(&w.slab); c != nil {
		until = min(until, c.deadline)
	}
	return time.Duration(until - now)
}

// expire ends the connections whose deadline has passed.
func (w *worker) expire(now int64) {
	for c := w.answers.first(&w.slab); c != nil && c.deadline <= now; c = w.answers.first(&w.slab) {
		if c.counted {
			w.tally.loss.timeout(c.open())
		}
		w.lost(c)
	}
	for c := w.lingerers.first(&w.slab); c != nil && c.deadline <= now; c = w.lingerers.first(&w.slab) {
		w.drop(c)
	}
}

// publish shows the counts to Run. The stores are to memory only this thread
// writes, so they stay in its cache.
func (w *worker) publish() {
	t := w.tally
	w.gauge.scheduled.Store(int64(t.scheduled))
	w.gauge.issued.Store(int64(t.issued))
	w.gauge.replies.Store(int64(t.replies))
	w.gauge.lost.Store(int64(t.loss.Total()))
	w.gauge.open.Store(int64(w.slab.open))
}

// finish closes what is open and takes the thread's CPU time since began.
func (w *worker) finish(began cpuTime) {
	for c := w.answers.first(&w.slab); c != nil; c = w.answers.first(&w.slab) {
		if c.counted {
			w.tally.unfinish(w.menu.names[c.arrival.request])
		}
		w.drop(c)
	}
	for c := w.lingerers.first(&w.slab); c != nil; c = w.lingerers.first(&w.slab) {
		w.drop(c)
	}
	for c := w.pool.any(&w.slab); c != nil; c = w.pool.any(&w.slab) {
		w.drop(c)
	}
	w.poller.close()
	w.endNS = w.now()
	if !w.over { // cancelled: what was due by now was scheduled all the same
		w.issuedAll()
		w.abandon(w.endNS, w.tally.unfinish)
	}
	w.publish()
	w.cpuIssuing = w.cpuIssuing.since(began)
	w.cpu = threadTime().since(began)
}
