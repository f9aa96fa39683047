// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"

	"imbang/internal/model"
)

// A director that was the master and is a backup now removes what the master does not have.
func TestWithdrawFromAFormerMaster(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.addService(s, 1)
	r.establish(client1, vip)
	c := replica(s.Key, client1, "172.16.0.10:8080")
	errs, _, err := r.Withdraw([]model.Connection{c})
	r.must(err)
	r.must(errs...)
	if n := r.tableEntries(0); n != 0 {
		t.Errorf("%d entries that the master does not have", n)
	}
}
