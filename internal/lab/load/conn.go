// SPDX-License-Identifier: Apache-2.0

package load

// state is where a connection stands.
type state uint8

const (
	idle       state = iota // the record is free
	connecting              // request not wholly sent, nor perhaps the handshake done
	awaiting                // request sent, reply incomplete
	lingering               // reply complete and counted, waiting for the server's FIN
	parked                  // reply complete and counted, open for another request
)

// conn is one connection's record, with the request that it carries. Times are
// ns from the run's beginning.
type conn struct {
	arrival
	started  int64
	first    int64 // first byte of the reply; 0 before it
	deadline int64

	prev, next int32 // neighbours in its queue
	self       int32
	fd         int32
	sent       int32 // bytes of the request sent
	carried    int32 // requests before this one
	state      state

	form  *form
	out   []byte // the request's bytes
	made  []byte // memory for those that differ from one to the next
	reply reply
}

// open reports whether the handshake is known to be over.
func (c *conn) open() bool { return c.sent > 0 || c.carried > 0 }

// none is no record.
const none int32 = -1

// chunk records are allocated together: few allocations, and none that moves
// records already in use.
const chunk = 1024

// slab hands out records. The last one freed is the first reused, so a
// server that answers quickly keeps the generator in a few cache lines.
type slab struct {
	chunks [][]conn
	free   []int32
	open   int
	peak   int
}

func (s *slab) at(i int32) *conn { return &s.chunks[i/chunk][i%chunk] }

// get is a free record with a fresh reply parser.
func (s *slab) get() *conn {
	if len(s.free) == 0 {
		s.grow()
	}
	c := s.at(s.free[len(s.free)-1])
	s.free = s.free[:len(s.free)-1]
	s.open++
	s.peak = max(s.peak, s.open)
	*c = conn{self: c.self, fd: -1, prev: none, next: none, made: c.made, reply: c.reply}
	c.reply.reset()
	return c
}

func (s *slab) put(c *conn) {
	c.state = idle
	s.open--
	s.free = append(s.free, c.self)
}

func (s *slab) grow() {
	base := int32(len(s.chunks) * chunk)
	s.chunks = append(s.chunks, make([]conn, chunk))
	for i := int32(chunk) - 1; i >= 0; i-- {
		s.at(base + i).self = base + i
		s.free = append(s.free, base+i)
	}
}

// queue is a list of connections in the order of their deadlines. Every
// deadline in one queue is its insertion time plus the same constant, so
// appending keeps the order and no heap is needed.
type queue struct{ head, tail int32 }

func newQueue() queue { return queue{none, none} }

func (q *queue) push(s *slab, c *conn) {
	c.prev, c.next = q.tail, none
	if q.tail == none {
		q.head = c.self
	} else {
		s.at(q.tail).next = c.self
	}
	q.tail = c.self
}

func (q *queue) remove(s *slab, c *conn) {
	if c.prev == none {
		q.head = c.next
	} else {
		s.at(c.prev).next = c.next
	}
	if c.next == none {
		q.tail = c.prev
	} else {
		s.at(c.next).prev = c.prev
	}
	c.prev, c.next = none, none
}

// first is the connection with the earliest deadline, or nil.
func (q *queue) first(s *slab) *conn {
	if q.head == none {
		return nil
	}
	return s.at(q.head)
}
