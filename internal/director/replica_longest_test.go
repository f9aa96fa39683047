// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"
	"time"

	"imbang/internal/model"
)

// A copy that lives longer than the longest timeout is entered with that.
func TestReplicateTheLongestTimeout(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.addService(s, 1)
	c := replica(s.Key, client1, "172.16.0.10:8080")
	c.Expires = maxExpiry + maxExpiry/2 // 31 days, and what a copy lives longer
	r.replicate(c)
	if got := r.connection(client1); got.Expires < maxExpiry-time.Minute {
		t.Errorf("it expires in %v", got.Expires)
	}
	errs, _, err := r.Withdraw([]model.Connection{c})
	r.must(err)
	r.must(errs...)
	if n := r.tableEntries(0); n != 0 {
		t.Errorf("%d entries", n)
	}
}
