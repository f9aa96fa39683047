// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Events come by time, and at the same time as they were planned.
func TestQueueIsSorted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		times := rapid.SliceOf(rapid.Int64Range(0, 20)).Draw(t, "times")
		var q queue
		var want []event
		for i, at := range times {
			q.plan(at, done, int32(i))
			want = append(want, event{at, uint64(i), int32(i), done})
		}
		slices.SortStableFunc(want, func(a, b event) int { return cmp.Compare(a.at, b.at) })
		for i, w := range want {
			if got := q.take(); got != w {
				t.Fatalf("event %d is %+v, want %+v", i, got, w)
			}
		}
		if len(q.heap) != 0 {
			t.Fatalf("%d events are left", len(q.heap))
		}
	})
}
