// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os"
	"time"

	"imbang/internal/daemon/hooks"
	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/host"
)

// loop has all state; its methods are called by one goroutine.
type loop struct {
	Options
	ledger
	poll      *poller
	worker    *worker
	links     *host.Links // the worker's
	watch     *host.DeviceWatch
	announcer *host.Announcer
	hooks     *hooks.Queue
	tracker   *tracker
	lock      *os.File

	setup         *setup.Setup
	devices       map[string]*host.Device
	sockets       map[spot]*opened
	socketsAt     time.Duration // when failures are tried again; 0: never
	routes        map[route]target
	groups        []*group
	outbox        []announcement     // what is still to be announced, in this order
	first         int                // of the groups that the next round begins with
	advertisement vrrp.Advertisement // that is being received
	message       []byte             // that is being sent

	// looking: the worker reads the devices; lookAgain: they have changed since.
	looking, lookAgain bool
	lookAt             time.Duration // when they are read, by a timer; 0: never
	reading            reading
	lookError          string

	began       time.Time
	loaded      time.Time
	loadError   string
	notRealTime string        // why
	late        time.Duration // of ticks, at most
	again       int           // rounds in a row that were too long for ticks
	started     bool
	stopping    bool
	busyHost    bool // masters announce a longer interval, as a client has said so
	replacing   *replacement

	controlled
	planeUse
	wants chan []neighbour // for surroundings
}

// Bounds of a round. One that took longer than slack before ticks is followed by another one,
// as advertisements may have arrived meanwhile; but not more than some in a row.
const (
	slack     = 5 * time.Millisecond
	moreTimes = 3
)

// run is the loop.
func (l *loop) run() error {
	for {
		t := now()
		if l.watch.Drain() {
			l.look()
		}
		read := true
		for _, s := range l.sockets {
			read = l.receive(s) && read
		}
		for _, f := range l.poll.take() {
			f()
		}
		if l.stopping {
			l.stop()
			return nil
		}
		if l.replacing != nil {
			if err := l.replace(); err != nil {
				return err
			}
		}
		if !l.tick(t, read) {
			l.flush(now())
			continue
		}
		l.flush(t)
		l.sendAnnouncements()
		if err := l.poll.wait(l.next(t)); err != nil {
			return err
		}
	}
}

// tick calls the machines that are due, and reports false if advertisements have to be read
// before the others are. A master that does not read everything advertises nevertheless.
func (l *loop) tick(t time.Duration, read bool) bool {
	l.checkReady(t)
	for i := range l.groups {
		g := l.groups[(l.first+i)%len(l.groups)]
		if due := g.next != 0 && t >= g.next; !due && (g.failedUntil == 0 || t < g.failedUntil) && (g.overdueAt() == 0 || t < g.overdueAt()) {
			continue
		}
		stale := now()-t > slack
		if (stale || !read && g.machine.State() != vrrp.Master) && l.again < moreTimes {
			l.again++
			l.first = (l.first + i) % len(l.groups)
			return false
		}
		at := t
		if stale {
			at = now()
		}
		g.tick(at)
	}
	l.again, l.first = 0, 0
	l.retry(t)
	return true
}

func (g *group) tick(t time.Duration) {
	if g.next != 0 && t >= g.next {
		g.call(func(m *vrrp.Machine, out *vrrp.Output) { m.Tick(t, out) })
	}
	g.retry(t)
	g.checkOverdue(t)
}

// retry does again what failed.
func (l *loop) retry(t time.Duration) {
	l.sendResignations(t)
	if l.expires(t) == 0 {
		l.synchronize()
	}
	l.announceBusy(t)
	if l.lookAt != 0 && t >= l.lookAt {
		l.look()
	}
	if l.socketsAt != 0 && t >= l.socketsAt {
		l.openSockets()
		l.reviewAll(t)
	}
}

// next is when the next round is due, at the latest; 0: there is no such time.
func (l *loop) next(t time.Duration) (next time.Duration) {
	soonest := func(at time.Duration) {
		if at != 0 && (next == 0 || at < next) {
			next = at
		}
	}
	for _, g := range l.groups {
		soonest(g.next)
		soonest(g.failedUntil)
		soonest(g.overdueAt())
		soonest(g.resignAt)
	}
	soonest(l.lookAt)
	soonest(l.busyNext(t))
	soonest(l.socketsAt)
	soonest(l.expires(t))
	if l.clean && !l.busy {
		soonest(max(l.cleanAfter, t))
	}
	if len(l.outbox) > 0 {
		soonest(t)
	}
	if l.replacing != nil {
		soonest(t + replacementStep)
	}
	return next
}
