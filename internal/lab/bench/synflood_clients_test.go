// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"testing"
	"time"
)

// No client may still connect when the flood is over, unless the flood is too short.
func TestLastComers(t *testing.T) {
	for flood, want := range map[time.Duration]time.Duration{
		15 * time.Second: 10 * time.Second, 10 * time.Second: 5 * time.Second, 2 * time.Second: time.Second,
	} {
		if got := lastComers(flood); got != want {
			t.Errorf("a flood of %v: %v, want %v", flood, got, want)
		}
	}
}
