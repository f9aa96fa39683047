// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"
	"time"
)

// A status says how long the sweep takes, and how far the buckets have grown.
func TestStatusOfTable(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.atLast(time.Minute, "the sweep has come by all entries", func() bool {
		s, err := r.Status()
		r.must(err)
		return s.Tables.SweepPass > 0 && s.Tables.SweepLongest >= s.Tables.SweepPass
	})
	before, err := r.Status()
	r.must(err)
	for i := range 2000 {
		r.syn(nthClient(i), vip)
	}
	r.atLast(time.Minute, "the sweep counts the entries", func() bool {
		s, err := r.Status()
		r.must(err)
		return s.Tables.Used >= 2000 && s.Tables.Buckets > before.Tables.Buckets
	})
}
