// SPDX-License-Identifier: Apache-2.0

package run

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestClocksOfServersThatWereStartedAnew(t *testing.T) {
	before := clocks{servers: map[string]time.Duration{"s1": 10, "s2": 20}, pids: map[string][]int{"s1": {1}, "s2": {2, 3}}}
	after := clocks{servers: map[string]time.Duration{"s1": 15, "s2": 27}, pids: map[string][]int{"s1": {1}, "s2": {2, 3}}}
	if diff := cmp.Diff(map[string]time.Duration{"s1": 5, "s2": 7}, after.since(before).ServersNS); diff != "" {
		t.Error(diff)
	}
	after.pids["s2"], after.servers["s2"] = []int{4}, 1
	if got := after.since(before).ServersNS; got != nil {
		t.Errorf("%v of a server that is another process now, want nothing", got)
	}
}
