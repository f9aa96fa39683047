// SPDX-License-Identifier: Apache-2.0

package load

import (
	"math"
	"math/rand/v2"
)

// schedule yields the intended starts of a whole run, in nanoseconds from
// its beginning, without end. It is pure: it neither sleeps nor reads a clock.
type schedule struct {
	gap  float64 // mean gap, ns
	n    float64 // arrivals yielded
	at   float64 // last Poisson arrival, ns
	rand *rand.Rand
}

func newSchedule(rate float64, kind Arrivals, seed uint64) *schedule {
	s := &schedule{gap: 1e9 / rate}
	if kind == Poisson {
		// The second word only has to differ from the first.
		s.rand = rand.New(rand.NewPCG(seed, seed^0x9e3779b97f4a7c15))
	}
	return s
}

// next is the next intended start. Constant arrivals are multiples of the gap,
// not sums of it, so rounding never accumulates; the first is at 0. Poisson
// gaps come from the exponential distribution, the first included.
func (s *schedule) next() int64 {
	if s.rand == nil {
		at := s.n * s.gap
		s.n++
		return int64(at)
	}
	s.at += s.rand.ExpFloat64() * s.gap
	return int64(s.at)
}

// deal is one client's share of the schedule. Every client walks the whole
// sequence and keeps each clients-th arrival, so what the cluster sees does
// not depend on how many clients send it: a Poisson stream stays Poisson and
// a constant one evenly spaced. Walking costs a few ns per skipped arrival.
type deal struct {
	schedule *schedule
	clients  int
	me       int

	from  int64 // counting starts here (end of warm-up), ns
	until int64 // no arrivals from here on; MaxInt64 when a number limits
	left  int   // counted arrivals still to come, all clients together

	index int
	end   int64 // first instant after the last counted arrival, once known
	over  bool
}

// newDeal is client me's share of p.
func newDeal(p Plan, me int) *deal {
	d := &deal{
		schedule: newSchedule(p.Rate, p.Arrivals, p.Seed),
		clients:  len(p.Clients),
		me:       me,
		from:     int64(p.Warmup),
		until:    math.MaxInt64,
		left:     math.MaxInt,
	}
	if p.Connections > 0 {
		d.left = p.Connections
	} else {
		d.until = int64(p.Warmup + p.Duration)
	}
	return d
}

// next is this client's next intended start and whether it counts; ok is
// false when the schedule is over, and then end is known.
func (d *deal) next() (at int64, counted, ok bool) {
	for !d.over {
		at = d.schedule.next()
		counted = at >= d.from
		switch {
		case d.left == 0:
			// The instant the next arrival would have come closes the
			// window, so n arrivals span n gaps and not n-1.
			d.end, d.over = at, true
			continue
		case at >= d.until:
			d.end, d.over = d.until, true
			continue
		}
		if counted && d.left != math.MaxInt {
			d.left--
		}
		mine := d.index%d.clients == d.me
		d.index++
		if mine {
			return at, counted, true
		}
	}
	return 0, false, false
}

// nominalEnd is the window's end as planned, in ns: exact for a duration,
// expected for a number of Poisson arrivals.
func nominalEnd(p Plan) int64 {
	if p.Connections > 0 {
		return int64(p.Warmup) + int64(float64(p.Connections)*1e9/p.Rate)
	}
	return int64(p.Warmup + p.Duration)
}
