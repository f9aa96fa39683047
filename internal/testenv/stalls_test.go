// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"testing"
	"time"
)

// A stall counts from when the goroutine was due, also before it has woken.
func TestStalls(t *testing.T) {
	s := WatchStalls(t)
	time.Sleep(20 * time.Millisecond)
	if got := s.Longest(); got < 0 || got > 10*time.Second {
		t.Errorf("a stall of %v", got)
	}
	s = &Stalls{due: time.Now().Add(-300 * time.Millisecond)}
	if got := s.Longest(); got < 300*time.Millisecond {
		t.Errorf("a stall of %v, want 300 ms", got)
	}
}
