// SPDX-License-Identifier: Apache-2.0

package load

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"imbang/internal/lab/arrivals"
	"imbang/internal/lab/rng"
)

// afterFailure is how long a user of a closed loop waits after a request that
// was not answered: a server that refuses would otherwise get as many as the
// client's CPU can send.
const afterFailure = 10 * time.Millisecond

// crowd is what the users of all clients share.
type crowd struct {
	asked atomic.Int64 // numbers given out
	left  atomic.Int64 // counted requests still to be sent
}

// users are one client's share of a closed loop: each sends its next request
// when the last has ended, after a pause perhaps.
type users struct {
	crowd   *crowd
	sources int32
	from    int64
	until   int64 // MaxInt64 when a number limits
	think   float64
	rand    *rand.Rand // of exponential pauses; nil for constant ones
	over    bool

	idle []turn // heap, the earliest first
}

// turn is when a user sends next.
type turn struct {
	at   int64
	user int32
}

func newUsers(p Plan, me int, shared *crowd) *users {
	u := &users{
		crowd: shared, sources: int32(len(p.Clients[me].Sources)),
		from: int64(p.Warmup), until: math.MaxInt64, think: float64(p.Think),
	}
	if p.Arrivals == arrivals.Poisson {
		u.rand = rng.Stream(p.Seed, uint64(me))
	}
	if p.Duration > 0 {
		u.until = int64(p.Warmup + p.Duration)
	}
	for i := me; i < p.Concurrency; i += len(p.Clients) {
		// Users who think do not all come at once.
		first := u.think * float64(i) / float64(p.Concurrency)
		if u.rand != nil {
			first = float64(u.pause())
		}
		u.push(turn{int64(first), int32(i / len(p.Clients))})
	}
	return u
}

// pause is one think time, in ns.
func (u *users) pause() int64 {
	if u.rand == nil {
		return int64(u.think)
	}
	return int64(u.rand.ExpFloat64() * u.think)
}

func (u *users) peek(now int64) (int64, bool) {
	if now >= u.until || u.crowd.left.Load() <= 0 {
		u.over = true
	}
	if u.over || len(u.idle) == 0 {
		return u.until, !u.over
	}
	return min(u.idle[0].at, u.until), true
}

func (u *users) take() (arrival, bool) {
	next := u.pop()
	counted, last := next.at >= u.from, false
	if counted {
		left := u.crowd.left.Add(-1)
		if left < 0 {
			u.over = true
			return arrival{}, false
		}
		last = left == 0
	}
	a := arrival{at: next.at, n: u.crowd.asked.Add(1) - 1, counted: counted, last: last,
		source: anyone, request: anyone, target: anyone, user: next.user}
	if u.sources > 0 {
		a.source = next.user % u.sources
	}
	return a, true
}

func (u *users) free(user int32, at int64) { u.push(turn{at + u.pause(), user}) }

// end is known for a duration only: a number ends with its last reply.
func (u *users) end() (int64, bool) { return u.until, u.over && u.until != math.MaxInt64 }

// push and pop keep the heap; container/heap would allocate for every turn.
func (u *users) push(t turn) {
	u.idle = append(u.idle, t)
	for i := len(u.idle) - 1; i > 0; {
		up := (i - 1) / 2
		if u.idle[up].at <= u.idle[i].at {
			return
		}
		u.idle[up], u.idle[i] = u.idle[i], u.idle[up]
		i = up
	}
}

func (u *users) pop() turn {
	first, last := u.idle[0], len(u.idle)-1
	u.idle[0] = u.idle[last]
	u.idle = u.idle[:last]
	for i := 0; ; {
		least := i
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < last && u.idle[down].at < u.idle[least].at {
				least = down
			}
		}
		if least == i {
			return first
		}
		u.idle[least], u.idle[i] = u.idle[i], u.idle[least]
		i = least
	}
}
