// SPDX-License-Identifier: Apache-2.0

package load

import (
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

// worker is one client: one locked thread, its sockets, its part of the
// schedule. Nothing in it is shared but gauge and stop.
type worker struct {
	plan    Plan
	request []byte
	family  int
	target  *sockaddr
	sources []*sockaddr
	turn    int // the next source

	base  time.Time // the run's beginning
	stop  *atomic.Bool
	gauge gauge

	deal     *deal
	at       int64 // the next arrival, when more
	counted  bool
	more     bool
	deadline int64 // nominal end plus grace: unissued after it is lost

	poller    *poller
	slab      slab
	answers   queue // connecting and awaiting, deadline Timeout
	lingerers queue // deadline Linger
	buf       []byte
	names     *names
	tally     *tally
	eager     eagerness

	ports      int // usable local ports, per source
	cpu        cpuTime
	cpuIssuing cpuTime // until the last arrival was issued
	issuingNS  int64   // when that was
	endNS      int64   // when the last connection ended
}

// newWorker prepares client me on the calling thread, which is already in its
// namespace.
func newWorker(p Plan, me int, stop *atomic.Bool) (*worker, error) {
	poller, err := newPoller()
	if err != nil {
		return nil, err
	}
	w := &worker{
		plan: p, request: p.request(), family: family(p.Target.Addr()), target: newSockaddr(p.Target),
		stop: stop, deal: newDeal(p, me), deadline: nominalEnd(p) + int64(p.Grace),
		poller: poller, answers: newQueue(), lingerers: newQueue(),
		buf: make([]byte, 64<<10), names: newNames(p.ServerHeader), tally: newTally(),
		ports: localPorts(),
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
	w.advance()
	for !w.stop.Load() {
		w.issueDue()
		now := w.now()
		w.expire(now)
		w.publish()
		if !w.more && w.slab.open == 0 {
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

// advance takes the next arrival off the schedule.
func (w *worker) advance() {
	w.at, w.counted, w.more = w.deal.next()
	if !w.more {
		w.issuingNS, w.cpuIssuing = w.now(), threadTime()
	}
}

// issueDue opens connections for arrivals that are due, a burst at most. When
// the grace is over it gives up what is left, counting it.
func (w *worker) issueDue() {
	for range burst {
		if !w.more {
			return
		}
		now := w.now()
		if w.at > now {
			return
		}
		if now > w.deadline {
			w.giveUp()
			return
		}
		w.issue(now)
		w.advance()
	}
}

// giveUp counts every arrival left as lost by the client.
func (w *worker) giveUp() {
	for ; w.more; w.advance() {
		if w.counted {
			w.tally.scheduled++
			w.tally.loss.Client.Unissued++
		}
	}
}

// pause is how long nothing is due: until the next arrival or deadline.
func (w *worker) pause(now int64) time.Duration {
	until := now + int64(look)
	if w.more {
		until = min(until, w.at)
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
			w.tally.loss.timeout(c.state != connecting)
		}
		w.end(c)
	}
	for c := w.lingerers.first(&w.slab); c != nil && c.deadline <= now; c = w.lingerers.first(&w.slab) {
		w.end(c)
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
	for _, q := range []*queue{&w.answers, &w.lingerers} {
		for c := q.first(&w.slab); c != nil; c = q.first(&w.slab) {
			if c.counted && c.state != lingering {
				w.tally.unfinished++
			}
			w.end(c)
		}
	}
	w.poller.close()
	w.endNS = w.now()
	if w.more { // cancelled: what was due by now was scheduled all the same
		w.issuingNS, w.cpuIssuing = w.endNS, threadTime()
		for ; w.more && w.at <= w.endNS; w.at, w.counted, w.more = w.deal.next() {
			if w.counted {
				w.tally.scheduled++
				w.tally.unfinished++
			}
		}
	}
	w.publish()
	w.cpuIssuing = w.cpuIssuing.since(began)
	w.cpu = threadTime().since(began)
}
