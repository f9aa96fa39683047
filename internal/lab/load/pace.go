// SPDX-License-Identifier: Apache-2.0

package load

import (
	"math"

	"imbang/internal/lab/arrivals"
)

// anyone leaves a choice to the client, or makes it a random one.
const anyone int32 = -1

// arrival is one request that is to be sent.
type arrival struct {
	at      int64 // intended start, ns from the run's beginning
	n       int64 // its number in the run, the warm-up's and all clients' together
	counted bool  // not of the warm-up
	last    bool  // of a closed loop's number of requests

	source  int32 // index of the client's sources, or anyone
	request int32 // index of Plan.Requests, or anyone
	target  int32 // index of Plan.Targets, or anyone
	user    int32 // of a closed loop, or anyone
}

// timetable says when a client sends what.
type timetable interface {
	// peek is the next intended start, as far as known now; more is false
	// when there will be none.
	peek(now int64) (at int64, more bool)
	// take is the arrival that peek has seen due. ok is false when another
	// client was quicker and nothing is left.
	take() (a arrival, ok bool)
	// free tells a user of a closed loop that the request has ended.
	free(user int32, at int64)
	// end is the first instant after the counted window, once known.
	end() (int64, bool)
}

// schedule yields the arrivals of an open loop as a stream, without end.
type schedule struct{ *arrivals.Schedule }

func (s schedule) next() (arrival, bool) {
	return arrival{at: s.Next(), source: anyone, request: anyone, target: anyone, user: anyone}, true
}

// spec is the schedule of a plan.
func (p *Plan) spec() arrivals.Spec {
	return arrivals.Spec{
		Pattern: arrivals.Pattern{Distribution: p.Arrivals, Shape: p.Shape}, Rate: p.Rate, Seed: p.Seed,
		Warmup: p.Warmup, Duration: p.Duration, Connections: p.Connections,
	}
}

// stream is a whole run's arrivals in the order of time.
type stream interface {
	next() (a arrival, ok bool)
}

// deal is one client's share of an open loop. Every client walks the whole
// sequence and keeps its part, so what the cluster sees does not depend on how
// many clients send it: a Poisson stream stays Poisson and a constant one
// evenly spaced. Walking costs a few ns per skipped arrival. An arrival that
// names its source belongs to the client with that address, any other to each
// client in rotation.
type deal struct {
	stream  stream
	owners  []owner // of sources, over all clients
	clients int
	me      int

	from  int64 // counting starts here (end of warm-up), ns
	until int64 // no arrivals from here on; MaxInt64 when something else limits
	left  int   // counted arrivals still to come, all clients together

	index int64
	last  int64 // the latest arrival seen
	close int64 // first instant after the last counted arrival, once known
	over  bool

	head arrival // the next of this client, when more
	more bool
}

// newDeal is client me's share of p.
func newDeal(p Plan, me int) *deal {
	d := &deal{
		owners: p.owners(), clients: len(p.Clients), me: me,
		from: int64(p.Warmup), until: math.MaxInt64, left: math.MaxInt,
	}
	if len(p.Trace) > 0 {
		d.stream = &replay{events: p.Trace}
	} else {
		d.stream = schedule{arrivals.NewSchedule(p.spec())}
	}
	switch {
	case p.Connections > 0:
		d.left = p.Connections
	case p.Duration > 0:
		d.until = int64(p.Warmup + p.Duration)
	}
	d.head, d.more = d.next()
	return d
}

func (d *deal) peek(int64) (int64, bool) { return d.head.at, d.more }

func (d *deal) take() (arrival, bool) {
	a := d.head
	d.head, d.more = d.next()
	return a, true
}

func (d *deal) free(int32, int64) {}

func (d *deal) end() (int64, bool) { return d.close, d.over }

// next is this client's next arrival; ok is false when the schedule is over,
// and then its end is known.
func (d *deal) next() (a arrival, ok bool) {
	for !d.over {
		a, ok = d.stream.next()
		switch {
		case !ok:
			d.close, d.over = d.last+1, true
			continue
		case d.left == 0:
			// The instant the next arrival would have come closes the
			// window, so n arrivals span n gaps and not n-1.
			d.close, d.over = a.at, true
			continue
		case a.at >= d.until:
			d.close, d.over = d.until, true
			continue
		}
		a.n, a.counted, d.last = d.index, a.at >= d.from, a.at
		if a.counted && d.left != math.MaxInt {
			d.left--
		}
		d.index++
		if d.mine(&a) {
			return a, true
		}
	}
	return arrival{}, false
}

// mine reports whether an arrival is this client's, and turns its source into
// the client's own number of it.
func (d *deal) mine(a *arrival) bool {
	switch {
	case a.source == anyone:
		return int(a.n%int64(d.clients)) == d.me
	case len(d.owners) == 0: // a namespace each is all the identity there is
		client := int(a.source) % d.clients
		a.source = anyone
		return client == d.me
	}
	o := d.owners[int(a.source)%len(d.owners)]
	a.source = o.source
	return o.client == d.me
}

// nominalEnd is the window's end as planned, in ns: exact for a duration and
// for a trace, expected for a number of Poisson arrivals.
func nominalEnd(p Plan) int64 {
	switch {
	case p.Duration > 0:
		return int64(p.Warmup + p.Duration)
	case len(p.Trace) > 0:
		return int64(p.Trace[len(p.Trace)-1].At) + 1
	}
	return p.spec().End()
}
