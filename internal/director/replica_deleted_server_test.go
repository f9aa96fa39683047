// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"

	"imbang/internal/model"
)

// A backup has the deletion of an entry whose server was deleted on both directors.
func TestWithdrawOfADeletedServer(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.addService(s, 1)
	c := replica(s.Key, client1, "172.16.0.10:8080")
	r.replicate(c)
	r.must(r.DeleteServer(s.Key, c.RealServer))
	if _, _, err := r.Withdraw([]model.Connection{c}); err != nil {
		t.Fatal(err)
	}
	if n := r.tableEntries(0); n != 0 {
		t.Errorf("%d entries after the master's ended", n)
	}
}
