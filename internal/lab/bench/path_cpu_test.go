// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"math"
	"testing"
	"time"

	"imbang/internal/lab/measure"
)

// What the machine did and the site did not was others' work; there is never
// less than none.
func TestOthersShare(t *testing.T) {
	start := measure.Machine{At: time.Now(), CPUs: 2}
	end := func(idle time.Duration) measure.Machine {
		return measure.Machine{At: start.At.Add(time.Second), CPUs: 2, Idle: idle}
	}
	var o othersShare
	if got := o.take(); got != 0 {
		t.Errorf("of nothing %v", got)
	}
	o.add(start, end(500*time.Millisecond), 1100*time.Millisecond) // 400 ms
	o.add(start, end(0), 2*time.Second)
	if got := o.take(); math.Abs(got-0.1) > 1e-9 {
		t.Errorf("%v, want 0.1", got)
	}
	o.add(start, end(20*time.Millisecond), 2*time.Second) // the clocks differ
	if got := o.take(); got != 0 {
		t.Errorf("%v, want 0", got)
	}
}
