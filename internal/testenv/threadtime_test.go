// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"testing"
	"time"
)

// Work counts, and waiting does not.
func TestThreadTime(t *testing.T) {
	if took := ThreadTime(t, func() { time.Sleep(100 * time.Millisecond) }); took > 50*time.Millisecond {
		t.Errorf("a sleep of 100 ms takes %v", took)
	}
	n := 0
	took := ThreadTime(t, func() {
		for began := time.Now(); n < 1<<24 || time.Since(began) < 10*time.Millisecond; {
			n++
		}
	})
	if took < time.Millisecond {
		t.Errorf("16 million rounds take %v", took)
	}
}
