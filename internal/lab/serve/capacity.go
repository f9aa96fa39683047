// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"imbang/internal/lab/distribution"
	"imbang/internal/lab/rng"
)

// Capacity states what a server can do, however fast the machine is: it serves
// Concurrency requests at a time, each for a time drawn from Distribution, and lets
// Backlog more wait. At most Concurrency/Service requests are served a second.
type Capacity struct {
	Distribution distribution.Distribution
	Service      time.Duration // mean, at speed 1
	Concurrency  int
	Backlog      int // 0: any number may wait; a request beyond it is answered 503
	Speed        float64
	Page         int // bytes of a reply
	Seed         uint64
	Hashes       int // of 1 KB (SHA-256) that a request costs on the CPU, within its time
}

// station is a server of a stated capacity.
type station struct {
	Capacity
	speed   atomic.Uint64 // bits of a float64
	waiting atomic.Int64  // served or waiting
	places  chan *place

	mu   sync.Mutex
	rand *rand.Rand
}

// place serves one request at a time.
type place struct {
	// free is when it is done with the last one. The next begins then and not
	// when the sleeper woke, so that late timers take nothing off the capacity.
	free time.Time
}

// NewStation makes a server of a stated capacity.
func NewStation(c Capacity) Server {
	s := &station{
		Capacity: c, places: make(chan *place, c.Concurrency), rand: rng.Stream(c.Seed),
	}
	for range c.Concurrency {
		s.places <- &place{}
	}
	_ = s.SetSpeed(c.Speed)
	return s
}

func (s *station) SetSpeed(speed float64) error {
	s.speed.Store(math.Float64bits(speed))
	return nil
}

// work is the time of one request.
func (s *station) work(path string) time.Duration {
	d := s.distributionOf(path)
	s.mu.Lock()
	share := d.Draw(s.rand)
	s.mu.Unlock()
	return time.Duration(share * float64(s.Service) / math.Float64frombits(s.speed.Load()))
}

func (s *station) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	came := time.Now()
	defer s.waiting.Add(-1)
	if n := s.waiting.Add(1); s.Backlog > 0 && n > int64(s.Concurrency+s.Backlog) {
		http.Error(w, "overloaded", http.StatusServiceUnavailable)
		return
	}
	p := <-s.places
	begin := came
	if p.free.After(came) {
		begin = p.free
	}
	p.free = begin.Add(s.work(r.URL.Path))
	compute(s.Hashes)
	time.Sleep(time.Until(p.free))
	s.places <- p
	n, asked := sizeOf(r.URL.Path)
	if !asked {
		n = int64(s.Page)
	}
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	filling := filling()
	for n > 0 && r.Method != http.MethodHead {
		wrote, err := w.Write(filling[:min(n, int64(len(filling)))])
		if err != nil {
			return // a client that has gone has no reply
		}
		n -= int64(wrote)
	}
}
