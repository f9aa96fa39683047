// SPDX-License-Identifier: Apache-2.0

package load

import "golang.org/x/sys/unix"

// Conditions in an epoll event.
const (
	readable = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	finished = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	broken   = unix.EPOLLHUP | unix.EPOLLERR
)

// handle moves a connection on by one event.
func (w *worker) handle(c *conn, ev uint32) {
	switch c.state {
	case connecting:
		// The send reports a failed connect as well as SO_ERROR would.
		if gone, _ := w.send(c); gone {
			return
		}
		// A server may answer before it has the whole request.
		if c.sent > 0 && ev&readable != 0 {
			w.read(c, ev)
		}
	case awaiting:
		if ev&readable != 0 {
			w.read(c, ev)
		}
	case lingering:
		if ev&finished != 0 {
			w.drop(c)
		}
	case parked:
		// The server closes it, or says something nobody asked for.
		if ev&readable != 0 {
			w.drop(c)
		}
	}
}

// read takes what has arrived. A read that does not fill the buffer has
// emptied the socket (epoll(7)), and when the event said that the server's
// FIN is there too, and no error, the end of the stream is known without
// another call.
func (w *worker) read(c *conn, ev uint32) {
	for {
		n, e := rawRecv(c.fd, w.buf)
		if e == unix.EAGAIN {
			return
		}
		if e != 0 {
			w.fail(c, e)
			return
		}
		now := w.now()
		if n == 0 {
			w.eof(c, now)
			return
		}
		if w.window.has(now) {
			w.tally.carried.received += int64(n)
		}
		if c.first == 0 {
			c.first = now
		}
		done, err := c.reply.feed(w.buf[:n], w.names)
		switch {
		case err != nil:
			if c.counted {
				w.tally.loss.Malformed++
			}
			w.lost(c)
			return
		case done:
			w.complete(c, ev, now)
			return
		case n == len(w.buf) || ev&broken != 0:
			continue
		case ev&finished != 0:
			w.eof(c, now)
		}
		return
	}
}

// complete counts a reply and parks the connection, closes it, or waits for
// the server to.
func (w *worker) complete(c *conn, ev uint32, now int64) {
	w.answered(c, now)
	switch {
	case ev&finished != 0:
		w.drop(c)
	case c.state == awaiting && w.plan.keeps(c.carried) && c.reply.persists && !c.reply.excess:
		w.settle(c)
		c.state = parked
		w.pool.put(&w.slab, c)
	case w.plan.Closing == ClientFirst:
		w.drop(c)
	default:
		w.settle(c)
		c.state, c.deadline = lingering, now+int64(w.plan.Linger)
		w.lingerers.push(&w.slab, c)
	}
}

// answered counts a complete reply; its user may go on.
func (w *worker) answered(c *conn, now int64) {
	if c.counted {
		w.tally.reply(c, now)
	}
	if w.window.has(now) {
		w.tally.carried.replies++
	}
	w.free(&c.arrival, now)
}

// eof is the server's FIN before the reply was known to be complete.
func (w *worker) eof(c *conn, now int64) {
	switch {
	case c.reply.eof():
		w.answered(c, now)
		w.drop(c)
	case !w.again(c, now):
		if c.counted {
			w.tally.loss.Truncated++
		}
		w.lost(c)
	}
}

// fail ends a connection that the network or the server broke.
func (w *worker) fail(c *conn, e unix.Errno) {
	if (e == unix.ECONNRESET || e == unix.EPIPE) && w.again(c, w.now()) {
		return
	}
	if c.counted {
		w.tally.loss.remote(e, c.open())
	}
	w.lost(c)
}

// again repeats a request on a new connection. A server may close one that
// has carried requests at any moment, and then a request crosses the close on
// its way; clients repeat it if they may and nothing of a reply has come
// (RFC 9112, 9.3.1). The reply's time still counts from the first intention.
func (w *worker) again(c *conn, now int64) bool {
	if c.carried == 0 || c.first != 0 || !c.form.repeatable {
		return false
	}
	if c.counted {
		w.tally.repeated++
	}
	a := c.arrival
	w.drop(c)
	w.open(a, now)
	return true
}

// lost ends a connection whose request got no reply.
func (w *worker) lost(c *conn) {
	a := c.arrival
	w.drop(c)
	w.free(&a, w.now()+int64(afterFailure))
}

// free lets the user of a closed loop go on.
func (w *worker) free(a *arrival, at int64) {
	if a.user != anyone {
		w.table.free(a.user, at)
	}
}

// settle ends a request, whatever became of it, and leaves the connection in
// no queue.
func (w *worker) settle(c *conn) {
	w.answers.remove(&w.slab, c)
	if c.counted {
		w.tally.traffic(c)
	}
}

// drop closes the socket and frees the record.
func (w *worker) drop(c *conn) {
	switch c.state {
	case lingering:
		w.lingerers.remove(&w.slab, c)
	case parked:
		w.pool.remove(&w.slab, c)
	default:
		w.settle(c)
	}
	rawClose(c.fd)
	w.slab.put(c)
}
