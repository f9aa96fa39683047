// SPDX-License-Identifier: Apache-2.0

package simulate

// kind is what happens at an event.
type kind uint8

const (
	arrival kind = iota // of a burst of connections, mostly of one
	done                // a server has served a connection
	impatience
	tick   // the data plane's table is swept
	sample // the loads are looked at
)

// event is something that happens at a time.
type event struct {
	at   int64  // [ns] since the beginning
	turn uint64 // events at the same time come in the order in which they were planned
	conn int32
	kind kind
}

func (e event) before(o event) bool { return e.at < o.at || e.at == o.at && e.turn < o.turn }

// queue is the events to come: a heap of which each node has four children,
// which touches half as much memory as one with two.
type queue struct {
	heap []event
	next uint64
}

// plan adds an event.
func (q *queue) plan(at int64, k kind, conn int32) {
	e := event{at, q.next, conn, k}
	q.next++
	q.heap = append(q.heap, e)
	i := len(q.heap) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if !e.before(q.heap[parent]) {
			break
		}
		q.heap[i] = q.heap[parent]
		i = parent
	}
	q.heap[i] = e
}

// take removes the earliest event.
func (q *queue) take() event {
	first := q.heap[0]
	last := len(q.heap) - 1
	e := q.heap[last]
	q.heap = q.heap[:last]
	if last > 0 {
		q.sink(e)
	}
	return first
}

// sink puts an event in at the root and lets it down to its place.
func (q *queue) sink(e event) {
	i := 0
	for {
		child := 4*i + 1
		if child >= len(q.heap) {
			break
		}
		least := child
		for c := child + 1; c < min(child+4, len(q.heap)); c++ {
			if q.heap[c].before(q.heap[least]) {
				least = c
			}
		}
		if !q.heap[least].before(e) {
			break
		}
		q.heap[i] = q.heap[least]
		i = least
	}
	q.heap[i] = e
}
