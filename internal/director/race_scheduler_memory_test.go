// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"testing"

	"imbang/internal/bpfobj"
	"imbang/internal/bpfobj/lbtest"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// The memory of a service's scheduler has the service's id. A packet that was
// given that id before an edit writes there after it.

// wantUndrained opens connections, none of which may go to a server of weight 0.
func (x *interleaved) wantUndrained(service string, drained ...model.Server) {
	x.Helper()
	for i := range 6 {
		to, err := x.fromClientOn(cpuB, testenv.TCP(nthClient(100+i), service, "S")).server()
		x.must(err)
		for _, s := range drained {
			if to == s.AddrPort() {
				x.Errorf("connection %d goes to %s, which has weight 0", i, to)
			}
		}
	}
}

// rr writes its cursor into what is wrr's by then, with a current weight of 0.
func TestRaceRoundRobinBecomesWeighted(t *testing.T) {
	x := newInterleaved(t)
	s := tcpService(vip, "rr")
	x.addService(s, 0, 1)
	a, v := x.stopPacket(lbtest.LbHookPointPOINT_RR, testenv.TCP(client1, vip, "S"))
	s.Scheduler = "wrr"
	x.onCPU(cpuB, func() error { return x.EditService(s) })
	a.finish()
	if v.verdict != redirect {
		x.Errorf("the packet that was late: %s", v.verdict)
	}
	x.wantUndrained(vip, realServer(0, 0))
}

// Likewise, when the service is deleted and another one gets its id.
func TestRaceSchedulerMemoryOfAnother(t *testing.T) {
	x := newInterleaved(t)
	old := tcpService(vip, "rr")
	x.addService(old, 1, 1)
	a, _ := x.stopPacket(lbtest.LbHookPointPOINT_RR, testenv.TCP(client1, vip, "S"))
	fresh := tcpService(nthVIP(1), "wrr")
	x.onCPU(cpuB, func() error {
		return errors.Join(x.DeleteService(old.Key), x.AddService(fresh),
			x.AddServer(fresh.Key, realServer(5, 0)), x.AddServer(fresh.Key, realServer(6, 1)))
	})
	a.finish()
	x.wantUndrained(nthVIP(1), realServer(5, 0))
}

// wrr has read its cursor, and becomes another scheduler and wrr again: its turn is
// not one of the later wrr's.
func TestRaceWeightedTwice(t *testing.T) {
	x := newInterleaved(t)
	s := tcpService(vip, "wrr")
	x.addService(s, 2, 1)
	a, _ := x.stopPacket(lbtest.LbHookPointPOINT_WRR, testenv.TCP(client1, vip, "S"))
	become := func(scheduler string) func() error {
		return func() error { s.Scheduler = scheduler; return x.EditService(s) }
	}
	x.onCPU(cpuB, become("rr"))
	x.onCPU(cpuB, become("wrr"))
	before := x.stateOf(s.Key)
	a.finish()
	if after := x.stateOf(s.Key); after.WrrCursor != before.WrrCursor {
		x.Errorf("a packet of an earlier wrr moves the cursor from %#x to %#x", before.WrrCursor, after.WrrCursor)
	}
}

// Likewise rr.
func TestRaceRoundRobinTwice(t *testing.T) {
	x := newInterleaved(t)
	s := tcpService(vip, "rr")
	x.addService(s, 1, 1)
	a, _ := x.stopPacket(lbtest.LbHookPointPOINT_RR, testenv.TCP(client1, vip, "S"))
	become := func(scheduler string) func() error {
		return func() error { s.Scheduler = scheduler; return x.EditService(s) }
	}
	x.onCPU(cpuB, become("wrr"))
	x.onCPU(cpuB, become("rr"))
	before := x.stateOf(s.Key)
	a.finish()
	if after := x.stateOf(s.Key); after.RrCursor != before.RrCursor {
		x.Errorf("a packet of an earlier rr moves the cursor from %#x to %#x", before.RrCursor, after.RrCursor)
	}
}

// With a current weight of 0, no drained server is chosen.
func TestWeightedRoundRobinWithoutWeight(t *testing.T) {
	r := newRig(t, small)
	s := r.schedule(vip, "wrr", 0, 1, 1)
	state := r.stateOf(s.Key)
	state.WrrCursor &= 1<<33 - 1
	r.must(r.maps.ServiceStates.Put(r.serviceOf(s.Key).Id, state))
	s.want(4, "BCBC")
}

// stateOf is what a service's scheduler remembers.
func (r *rig) stateOf(k model.ServiceKey) (state bpfobj.LbServiceState) {
	r.Helper()
	r.must(r.maps.ServiceStates.Lookup(r.serviceOf(k).Id, &state))
	return state
}
