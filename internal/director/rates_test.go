// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"
	"time"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// Rates move every two seconds a quarter of the way to what was seen: a burst
// of n packets is n / 8 per second after one beat, and three quarters of what
// it was after each further one. Zeroing them begins anew.
func TestRates(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	// The estimator takes ids in rotation: this server's is not of the first.
	r.addService(tcpService(nthVIP(1), "rr"), make([]int32, 150)...)
	s := tcpService(vip, "rr")
	r.addService(s, 1)
	const n = 8000
	stalls := testenv.WatchStalls(t)
	r.flood(n, func(i int) testenv.Packet { return testenv.TCP(nthClient(i), vip, "S") })
	// The burst may straddle a beat: what is left of it then comes later.
	var seen []model.Rates
	r.atLast(time.Minute, "rates rise and fall", func() bool {
		rates := r.status(s.Key).Rates
		if len(seen) == 0 && rates.CPS > 0 || len(seen) > 0 && rates != seen[len(seen)-1] {
			seen = append(seen, rates)
		}
		if len(seen) < 3 {
			return false
		}
		// A test that stalls for 2 s misses a beat, and two falls look like one.
		last, before := seen[len(seen)-1].CPS, seen[len(seen)-2].CPS
		return last < before && (float64(last) > 0.72*float64(before) || stalls.Longest() < time.Second)
	})
	top := model.Rates{}
	for _, rates := range seen {
		if rates.CPS > top.CPS {
			top = rates
		}
	}
	if top.CPS < n/8*6/10 || top.CPS > n/8*11/10 || top.InPPS != top.CPS || top.OutPPS != 0 {
		t.Errorf("rates at their highest %+v, want about %d connections per second", top, n/8)
	}
	if ratio := float64(top.InBPS) / float64(top.InPPS); ratio < 43 || ratio > 45 {
		t.Errorf("%.1f bytes in a packet, want 44", ratio)
	}
	last := seen[len(seen)-1]
	if got := float64(last.CPS) / float64(seen[len(seen)-2].CPS); got < 0.72 || got > 0.78 {
		t.Errorf("fell to %.2f, want 0.75: %+v", got, seen)
	}
	if server := r.status(s.Key).Servers[0].Rates; server.CPS == 0 {
		t.Error("the server has no rate")
	}
	r.must(r.Zero(nil))
	if got := r.status(s.Key).Rates; got != (model.Rates{}) {
		t.Errorf("zeroed: %+v", got)
	}
}
