// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"slices"
	"sync/atomic"
	"testing"
)

// A supervisor that is started finds HAProxy's master, and only that, also while it executes
// itself.
func TestFoundDuringReloads(t *testing.T) {
	n := newNode(t)
	n.start()
	want := []int{n.status().HAProxy}
	done, asked := make(chan error, 1), atomic.Int64{}
	go func() {
		for i := 0; i < 3 || asked.Load() <= 3; i++ { // questions take long on a busy machine
			if _, err := n.ask(DoReload); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for i := 0; ; i++ {
		if got := find0(n); !slices.Equal(got, want) {
			t.Fatalf("found at question %d: %v; want %v", i, got, want)
		}
		asked.Add(1)
		select {
		case err := <-done:
			if err != nil || i < 3 {
				t.Errorf("%d questions, %v", i, err)
			}
			return
		default:
		}
	}
}
