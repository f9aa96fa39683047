// SPDX-License-Identifier: Apache-2.0

package load

import "golang.org/x/sys/unix"

// issue opens the connection that was due at w.at. now is its actual start.
func (w *worker) issue(now int64) {
	if w.plan.stall != nil {
		w.plan.stall(w.tally.all)
		now = w.now()
	}
	t := w.tally
	if w.counted {
		t.scheduled++
		record(t.lateness, now-w.at)
	}
	fd, e := w.open()
	if e != 0 {
		if w.counted {
			t.loss.local(e)
		}
		return
	}
	t.all++
	if w.counted {
		t.issued++
		t.lastIssue = now
	}
	c := w.slab.get()
	c.intended, c.started, c.counted = w.at, now, w.counted
	c.fd, c.state = fd, connecting
	c.deadline = now + int64(w.plan.Timeout)
	w.answers.push(&w.slab, c)

	e = rawConnect(fd, w.target)
	if e != 0 && e != unix.EINPROGRESS {
		w.connectFailed(c, e)
		return
	}
	w.register(c)
}

// open makes a socket bound to the next source address, if there are any.
func (w *worker) open() (int32, unix.Errno) {
	fd, e := rawSocket(w.family)
	if e != 0 || len(w.sources) == 0 {
		return fd, e
	}
	s := w.sources[w.turn]
	if w.turn++; w.turn == len(w.sources) {
		w.turn = 0
	}
	if e = rawBind(fd, s); e != 0 {
		rawClose(fd)
	}
	return fd, e
}

// connectFailed ends a connection whose connect failed at once. Everything
// but a refusal is this machine's doing, the lack of a free port (EADDRNOTAVAIL)
// above all; such a connection was never issued.
func (w *worker) connectFailed(c *conn, e unix.Errno) {
	switch {
	case e == unix.ECONNREFUSED:
		w.fail(c, e)
		return
	case c.counted:
		w.tally.issued--
		w.tally.loss.local(e)
	}
	w.tally.all--
	w.end(c)
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
		if c.state == awaiting {
			mask = forReply
		}
	}
	if e := w.poller.add(c.fd, c.self, mask); e != 0 {
		if c.counted {
			w.tally.loss.local(e)
		}
		w.end(c)
	}
}

// send sends what is left of the request. gone means the connection failed
// and its record is free.
func (w *worker) send(c *conn) (gone bool, e unix.Errno) {
	n, e := rawSend(c.fd, w.request[c.sent:])
	if e == unix.EAGAIN {
		return false, e
	}
	if e != 0 {
		w.fail(c, e)
		return true, e
	}
	if c.sent == 0 && c.counted {
		record(w.tally.connect, w.now()-c.intended)
	}
	c.sent += int32(n)
	if int(c.sent) == len(w.request) {
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
