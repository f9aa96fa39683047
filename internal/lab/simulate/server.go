// SPDX-License-Identifier: Apache-2.0

package simulate

import "container/list"

// server is a simulated real server: so many connections at a time, at its
// speed; the others wait in the order of their coming, as far as there is
// room.
type server struct {
	speed   float64
	busy    int
	waiting fifo
	cache   *cache

	served uint64
	work   int64 // [ns] that it spent serving while it counts, over all at a time
}

// room reports whether another connection can be taken in. A backlog below 0
// has no end.
func (s *server) room(concurrency, backlog int) bool {
	return s.busy < concurrency || backlog < 0 || s.waiting.len() < backlog
}

// fifo is connections that wait. Those that gave up stay in it until their
// turn, and do not count.
type fifo struct {
	ring    []int32
	head, n int // n counts those that gave up, too
	gone    int
}

func (f *fifo) len() int { return f.n - f.gone }

func (f *fifo) push(conn int32) {
	if f.n == len(f.ring) {
		bigger := make([]int32, max(8, 2*len(f.ring)))
		for i := range f.n {
			bigger[i] = f.ring[(f.head+i)%len(f.ring)]
		}
		f.ring, f.head = bigger, 0
	}
	f.ring[(f.head+f.n)%len(f.ring)] = conn
	f.n++
}

// pop takes the first out, who may have given up; false if there is none.
func (f *fifo) pop() (conn int32, ok bool) {
	if f.n == 0 {
		return 0, false
	}
	conn = f.ring[f.head]
	f.head = (f.head + 1) % len(f.ring)
	f.n--
	return conn, true
}

// cache is what a server has at hand of the destinations: the last that it
// served.
type cache struct {
	size  int
	order *list.List // the latest first
	at    map[int]*list.Element
}

func newCache(size int) *cache {
	return &cache{size: size, order: list.New(), at: map[int]*list.Element{}}
}

// use reports whether the destination was at hand; now it is.
func (c *cache) use(destination int) bool {
	if e, ok := c.at[destination]; ok {
		c.order.MoveToFront(e)
		return true
	}
	c.at[destination] = c.order.PushFront(destination)
	if c.order.Len() > c.size {
		oldest := c.order.Back()
		delete(c.at, c.order.Remove(oldest).(int))
	}
	return false
}
