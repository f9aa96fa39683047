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
		if gone, _ := w.send(c); gone || c.state != awaiting {
			return
		}
		if ev&readable != 0 {
			w.read(c, ev)
		}
	case awaiting:
		if ev&readable != 0 {
			w.read(c, ev)
		}
	case lingering:
		if ev&finished != 0 {
			w.end(c)
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
		if c.first == 0 {
			c.first = now
		}
		done, err := c.reply.feed(w.buf[:n], w.names)
		switch {
		case err != nil:
			if c.counted {
				w.tally.loss.Malformed++
			}
			w.end(c)
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

// complete counts a reply and closes, or waits for the server to.
func (w *worker) complete(c *conn, ev uint32, now int64) {
	if c.counted {
		w.tally.reply(c, now)
	}
	if w.plan.Closing == ClientFirst || ev&finished != 0 {
		w.end(c)
		return
	}
	w.answers.remove(&w.slab, c)
	c.state, c.deadline = lingering, now+int64(w.plan.Linger)
	w.lingerers.push(&w.slab, c)
}

// eof is the server's FIN before the reply was known to be complete.
func (w *worker) eof(c *conn, now int64) {
	if c.counted {
		if c.reply.eof() {
			w.tally.reply(c, now)
		} else {
			w.tally.loss.Truncated++
		}
	}
	w.end(c)
}

// fail ends a connection that the network or the server broke.
func (w *worker) fail(c *conn, e unix.Errno) {
	if c.counted {
		w.tally.loss.remote(e, c.sent > 0)
	}
	w.end(c)
}

// end closes the socket and frees the record.
func (w *worker) end(c *conn) {
	if c.state == lingering {
		w.lingerers.remove(&w.slab, c)
	} else {
		w.answers.remove(&w.slab, c)
	}
	rawClose(c.fd)
	if c.counted {
		w.tally.traffic(c)
	}
	w.slab.put(c)
}
