// SPDX-License-Identifier: Apache-2.0

package own

import (
	"testing"
	"time"
)

// Times in datagrams wrap around after 49.7 days.
func TestAgesWrapAround(t *testing.T) {
	const wraps = (1 << 32) * time.Millisecond
	var a ages
	started, ahead := time.Hour, 3*time.Hour // of the sender's clock, and of the receiver's
	sent := func(at, took time.Duration) time.Duration {
		now := at + ahead + took
		s := stamp(started+at, started)
		a.note(now, s)
		return a.of(now, s)
	}
	for at := wraps - 5*time.Second; at < wraps+5*time.Second; at += 100 * time.Millisecond {
		if got := sent(at, 3*time.Millisecond); got != 0 {
			t.Fatalf("%v before: an age of %v", wraps-at, got)
		}
		s := stamp(started+at-2*time.Second, started)
		if got := a.of(at+ahead+3*time.Millisecond, s); got != 2*time.Second {
			t.Fatalf("%v before: an age of %v, want 2 s", wraps-at, got)
		}
	}
}
