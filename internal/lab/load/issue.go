// SPDX-License-Identifier: Apache-2.0

package load

import "golang.org/x/sys/unix"

// issue sends the request that was due, on a connection that is open or on a
// new one. now is its actual start.
func (w *worker) issue(a arrival, now int64) {
	if w.plan.stall != nil {
		w.plan.stall(w.tally.all)
		now = w.now()
	}
	w.place(&a)
	w.tally.schedule(&a, w.menu.names[a.request])
	if a.counted {
		record(w.tally.lateness, now-a.at)
		w.tally.issued++
		w.tally.lastIssue = now
		if until, ok := w.window.known(); ok && now >= until {
			w.tally.carried.afterwards++
		}
		if a.last {
			w.window.sentLast(now)
		}
	}
	w.tally.requests++
	if c := w.pool.take(&w.slab, a.source, a.target); c != nil {
		w.reuse(c, a, now)
		return
	}
	w.open(a, now)
}

// place settles what an arrival asks for, where and from which source.
func (w *worker) place(a *arrival) {
	w.menu.choose(a)
	if a.source != anyone {
		return
	}
	a.source = w.turn
	if w.turn++; int(w.turn) >= len(w.sources) {
		w.turn = 0
	}
}

// open sends a request on a new connection.
func (w *worker) open(a arrival, now int64) {
	fd, e := w.socket(a.source)
	if e != 0 {
		w.unissued(&a, e)
		return
	}
	t := w.tally
	t.all++
	if a.counted {
		t.opened++
	}
	c := w.slab.get()
	c.fd = fd
	w.prepare(c, a, now)

	e = rawConnect(fd, w.targets[a.target])
	if e != 0 && e != unix.EINPROGRESS {
		w.connectFailed(c, e)
		return
	}
	w.register(c)
}

// prepare gives a connection its next request.
func (w *worker) prepare(c *conn, a arrival, now int64) {
	c.arrival, c.started, c.first, c.sent, c.state = a, now, 0, 0, connecting
	c.form, c.out, c.made = w.menu.write(&c.arrival, !w.plan.keeps(c.carried), c.made)
	c.reply.bodiless = c.form.head
	c.deadline = now + int64(w.plan.Timeout)
	w.answers.push(&w.slab, c)
}

// reuse sends a request on a connection taken from the pool.
func (w *worker) reuse(c *conn, a arrival, now int64) {
	c.carried++
	c.reply.reset()
	w.prepare(c, a, now)
	w.send(c)
}

// socket makes a socket bound to a source address, if there are any.
func (w *worker) socket(source int32) (int32, unix.Errno) {
	fd, e := rawSocket(w.family)
	if e != 0 || len(w.sources) == 0 {
		return fd, e
	}
	if e = rawBind(fd, w.sources[source]); e != 0 {
		rawClose(fd)
	}
	return fd, e
}

// unissued counts a request that this machine could not send.
func (w *worker) unissued(a *arrival, e unix.Errno) {
	now := w.now()
	if a.counted {
		w.tally.issued--
		w.tally.loss.local(e)
		if until, ok := w.window.known(); ok && now >= until {
			w.tally.carried.afterwards--
		}
	}
	w.free(a, now+int64(afterFailure))
}

// connectFailed ends a connection whose connect failed at once. Everything
// but a refusal is this machine's doing, the lack of a free port (EADDRNOTAVAIL)
// above all; such a connection was never issued.
func (w *worker) connectFailed(c *conn, e unix.Errno) {
	if e == unix.ECONNREFUSED {
		w.fail(c, e)
		return
	}
	a := c.arrival
	w.tally.all--
	if a.counted {
		w.tally.opened--
	}
	w.drop(c)
	w.unissued(&a, e)
}

// register puts a connection into the epoll set, having tried to send first.
//
// On one machine the handshake is usually over when connect returns: the
// packets cross veth or loopback in the sender's own context. Sending at once
// then spares a wake-up and an event. Across a real network the attempt fails
// (EAGAIN, about 0.2 us) and eagerness stops trying.
func (w *worker) register(c *conn) {
	mask := uint32(forAnyEnd)
	if w.eager.try() {
		gone, e := w.send(c)
		w.eager.learn(e != unix.EAGAIN)
		if gone {
			return
		}
		if c.state == awaiting && !w.plan.keeps(0) {
			mask = forReply
		}
	}
	if e := w.poller.add(c.fd, c.self, mask); e != 0 {
		if c.counted {
			w.tally.loss.local(e)
		}
		w.lost(c)
	}
}

// send sends what is left of the request. gone means the connection failed
// and its record is free.
func (w *worker) send(c *conn) (gone bool, e unix.Errno) {
	n, e := rawSend(c.fd, c.out[c.sent:])
	if e == unix.EAGAIN {
		return false, e
	}
	if e != 0 {
		w.fail(c, e)
		return true, e
	}
	now := w.now()
	if !c.open() && c.counted {
		record(w.tally.connect, now-c.at)
	}
	if w.window.has(now) {
		w.tally.carried.sent += int64(n)
	}
	c.sent += int32(n)
	if int(c.sent) == len(c.out) {
		c.state = awaiting
	}
	return false, 0
}

// eagerness decides whether to send right after connect. It gives up when
// most attempts fail and tries again now and then: the path may have changed.
type eagerness struct {
	score int8 // above 0 is discouraged
	skip  uint8
}

const (
	discouraged = 32
	retryEvery  = 64
)

func (g *eagerness) try() bool {
	if g.score < discouraged {
		return true
	}
	g.skip++
	return g.skip%retryEvery == 0
}

func (g *eagerness) learn(worked bool) {
	switch {
	case worked && g.score > 0:
		g.score -= 2
	case !worked && g.score < discouraged:
		g.score++
	}
}
