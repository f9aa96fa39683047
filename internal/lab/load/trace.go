// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"sort"
	"time"
)

// Event is one arrival of a trace that is replayed.
type Event struct {
	At time.Duration // from the run's beginning
	// Source numbers the clients' source addresses, all clients together in
	// order: equal numbers are one address. Numbers beyond the last address
	// begin again at the first, so that a client of the trace always keeps
	// its address but may share it. Without sources the clients themselves
	// are numbered.
	Source int32
	// Request and Target number Plan.Requests and Plan.Targets.
	Request int32
	Target  int32
}

// replay yields a trace as a stream.
type replay struct {
	events []Event
	at     int
}

func (r *replay) next() (arrival, bool) {
	if r.at == len(r.events) {
		return arrival{}, false
	}
	e := &r.events[r.at]
	r.at++
	return arrival{at: int64(e.At), source: e.Source, request: e.Request, target: e.Target, user: anyone}, true
}

// owner is where a source of the whole plan lives.
type owner struct {
	client int
	source int32
}

// owners lists the sources of all clients in order.
func (p Plan) owners() (list []owner) {
	for i, c := range p.Clients {
		for j := range c.Sources {
			list = append(list, owner{i, int32(j)})
		}
	}
	return list
}

// traceRate is the mean rate of a trace, or of the part that is sent of it,
// per second.
func (p Plan) traceRate() float64 {
	n := len(p.Trace)
	last := p.Trace[n-1].At
	if p.Duration > 0 {
		last = p.Warmup + p.Duration
		n = sort.Search(n, func(i int) bool { return p.Trace[i].At >= last })
	}
	return float64(max(1, n)) / max(last.Seconds(), 1e-3)
}

func (p Plan) validateTrace() error {
	var last time.Duration
	for i, e := range p.Trace {
		switch {
		case e.At < last:
			return fmt.Errorf("trace: event %d comes before the one before it: sort them by time", i)
		case e.Source < 0:
			return fmt.Errorf("trace: event %d: source %d: want 0 or more", i, e.Source)
		case e.Request < 0 || int(e.Request) >= len(p.Requests):
			return fmt.Errorf("trace: event %d: request %d: the plan has %d", i, e.Request, len(p.Requests))
		case e.Target < 0 || int(e.Target) >= len(p.Targets):
			return fmt.Errorf("trace: event %d: target %d: the plan has %d", i, e.Target, len(p.Targets))
		}
		last = e.At
	}
	return nil
}
