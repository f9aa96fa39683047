// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"sync"
	"testing"
	"time"
)

// Stalls measures for how long the machine does not run a goroutine of the test that should run, and
// how long the kernel takes for a request that needs its RTNL lock, as bounds of time must allow for
// that: the kernel holds that one lock while namespaces of other tests end.
type Stalls struct {
	mu      sync.Mutex
	due     time.Time
	asked   time.Time // the request under way; zero: none is
	longest time.Duration
}

// stallPeriod is how often the goroutine wakes.
const stallPeriod = time.Millisecond

// WatchStalls measures until the test ends.
func WatchStalls(t testing.TB) *Stalls {
	s := &Stalls{due: time.Now().Add(stallPeriod)}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		wake := time.NewTimer(stallPeriod) // one: tests count allocations meanwhile
		defer wake.Stop()
		for {
			select {
			case <-end:
				return
			case <-wake.C:
			}
			s.mu.Lock()
			s.note()
			s.due = time.Now().Add(stallPeriod)
			wake.Reset(stallPeriod)
			s.mu.Unlock()
		}
	}()
	locked := make(chan struct{})
	go func() {
		defer close(locked)
		s.watchRTNL(end)
	}()
	t.Cleanup(func() { close(end); <-ended; <-locked })
	return s
}

// note is called with the mutex.
func (s *Stalls) note() {
	s.longest = max(s.longest, time.Since(s.due))
	if !s.asked.IsZero() {
		s.longest = max(s.longest, time.Since(s.asked))
	}
}

// Longest is the longest stall so far, also if it lasts.
func (s *Stalls) Longest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note()
	return s.longest
}
