// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"testing"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// What the former build counted goes on, though counters in pages begin at 0: totals, what listings show
// since a zeroing, and rates. An upgrade that is killed behind it does not count it twice.
func TestUpgradeCarriesCounters(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"", "start the timers", "adopt the connections", "replace the programs on devices"} {
		t.Run("killed before "+step, func(t *testing.T) {
			r := newRig(t, small)
			s := tcpService(vip, "wlc")
			r.addService(s, 1)
			r.former()
			for i := range 10 {
				r.syn(nthClient(i), vip)
			}
			time.Sleep(5 * time.Second) // the former build's rates follow
			_, _, err := r.upgradeTo(ours(t), bpfobj.Fingerprint, step)
			var k killedBefore
			if errors.As(err, &k) != (step != "") {
				t.Fatal(err)
			}
			if step != "" {
				_, _, err = r.upgradeTo(ours(t), bpfobj.Fingerprint, "")
				r.must(err)
			}
			r.open(Sizes{})
			check := func(when string, total, since int) {
				t.Helper()
				got := r.status(s.Key)
				for what, counts := range map[string]struct {
					total, since model.Stats
					rates        model.Rates
				}{
					"service": {got.Total, got.Stats, got.Rates}, "server": {got.Servers[0].Total, got.Servers[0].Stats, got.Servers[0].Rates},
				} {
					if counts.total != syns(total) || counts.since != syns(since) || counts.rates.CPS > 10 {
						t.Errorf("%s: the %s counts %+v, in total %+v, with rates %+v; want %d and %d", when, what, counts.since, counts.total, counts.rates, since, total)
					}
				}
			}
			check("upgraded", 10, 10)
			time.Sleep(5 * time.Second)
			check("after rates were measured", 10, 10)
			r.syn(nthClient(10), vip)
			check("another connection", 11, 11)
			r.must(r.Zero(nil))
			check("zeroed", 11, 0)
			r.wantClean("upgraded")
		})
	}
}
