// SPDX-License-Identifier: Apache-2.0

package load

import (
	"math"
	"sync/atomic"
)

// window is the time whose replies and bytes make the rates: from the first
// instant that counts to the end of the schedule. A rate counts what came
// within it, and nothing after it: one reply that comes long after the others
// is one reply less, where a time until the last reply would lower the whole
// rate.
//
// Replies to requests of the warm-up count if they come within the window: in
// a steady state they are as many as the replies that come after it to
// requests of its last moments.
//
// The window's end is known before the run, with one exception: a closed loop
// of a number of requests ends nobody knows when. Its window ends when the
// last request is sent, since fewer users than the plan's are at work from
// then on. If some users send no second request, that says nothing, and the
// window ends with the last reply, as with ab and httperf.
type window struct {
	from  int64        // ns from the run's beginning
	until atomic.Int64 // first instant after it; unknown is math.MaxInt64
	last  bool         // the last request sent closes it
}

// open fills in the window of a plan.
func (w *window) open(p Plan) {
	w.from = int64(p.Warmup)
	w.until.Store(math.MaxInt64)
	switch {
	case p.Duration > 0 && len(p.Trace) == 0:
		w.until.Store(int64(p.Warmup + p.Duration))
	case p.Concurrency > 0:
		w.last = p.Connections >= 2*p.Concurrency
	default:
		d := newDeal(p, 0)
		for d.more {
			d.take()
		}
		w.until.Store(d.close)
	}
}

// has reports whether an instant is within the window, as far as known.
func (w *window) has(now int64) bool { return now >= w.from && now < w.until.Load() }

// sentLast tells the window that the last request was sent.
func (w *window) sentLast(now int64) {
	if w.last {
		w.until.Store(now)
	}
}

// known is the end; ok is false while it is unknown.
func (w *window) known() (until int64, ok bool) {
	until = w.until.Load()
	return until, until != math.MaxInt64
}

// carried is what came within the window.
type carried struct {
	replies        int // complete ones, the warm-up's too
	sent, received int64
	afterwards     int // counted requests started after it
}

func (c *carried) merge(o carried) {
	c.replies += o.replies
	c.sent += o.sent
	c.received += o.received
	c.afterwards += o.afterwards
}
