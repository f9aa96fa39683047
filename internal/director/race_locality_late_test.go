// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"

	"imbang/internal/bpfobj"
	"imbang/internal/bpfobj/lbtest"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// A packet of lblc or lblcr remembers its destination's server after an edit has
// taken the scheduler, and all it remembered, away.
func lateLocality(t *testing.T, scheduler string, at lbtest.LbHookPoint) {
	x := newInterleaved(t)
	s := tcpService(vip, scheduler)
	x.addService(s, 1, 1)
	a, _ := x.stopPacket(at, testenv.TCP(client1, vip, "S"))
	x.onCPU(cpuB, func() error {
		s.Scheduler = "rr"
		return x.EditService(s)
	})
	a.finish()
	// Another scheduler's turn has ended what was remembered by then.
	x.onCPU(cpuB, func() error {
		s.Scheduler = scheduler
		return x.EditService(s)
	})
	if late, current := x.localities(s.Key); current != 0 || late != 1 {
		x.Errorf("%s finds %d destinations of before it was chosen; want none, and 1 that is never looked for", scheduler, current)
	}
	// The destination is a new one: wlc chooses, and that is remembered.
	x.fromClientOn(cpuB, testenv.TCP(nthClient(1), vip, "S"))
	if _, current := x.localities(s.Key); current != 1 {
		x.Errorf("%s remembers %d destinations, want 1", scheduler, current)
	}
}

// localities counts the destinations that are remembered for a service: by earlier
// incarnations of it, and by the current one.
func (x *interleaved) localities(k model.ServiceKey) (earlier, current int) {
	x.Helper()
	tab, err := x.Director.load()
	x.must(err)
	svc := tab.services[toKey(k)]
	count := func(key bpfobj.LbLocalityKey) {
		switch {
		case key.Service != svc.Id:
		case key.Incarnation == svc.Incarnation:
			current++
		default:
			earlier++
		}
	}
	var key bpfobj.LbLocalityKey
	var one bpfobj.LbLocality
	it := x.maps.Localities.Iterate()
	for it.Next(&key, &one) {
		count(key)
	}
	x.must(it.Err())
	var set bpfobj.LbLocalitySet
	it = x.maps.LocalitySets.Iterate()
	for it.Next(&key, &set) {
		count(key)
	}
	x.must(it.Err())
	return earlier, current
}

func TestRaceLocalityLate(t *testing.T) {
	lateLocality(t, "lblc", lbtest.LbHookPointPOINT_LOCALITY_PUT)
}

func TestRaceLocalitySetLate(t *testing.T) {
	lateLocality(t, "lblcr", lbtest.LbHookPointPOINT_LOCALITY_SET)
}
