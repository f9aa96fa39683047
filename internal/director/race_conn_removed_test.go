// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"
	"time"

	"imbang/internal/bpfobj/lbtest"
	"imbang/internal/testenv"
)

// The wheel has come to a connection that is over, and another CPU's packet makes it
// live on before the wheel ends it.
func TestRaceExpiryOfRevived(t *testing.T) {
	x := newInterleaved(t)
	x.addService(tcpService(vip, "rr"), 1)
	x.establish(client1, vip)
	x.fromClientOn(cpuB, testenv.TCP(client1, vip, "R"))
	x.advance(11 * time.Second)
	a := x.stop(lbtest.LbHookPointPOINT_CONN_DUE, x.wheelOnA)
	x.fromClientOn(cpuB, testenv.TCP(client1, vip, "A"))
	a.finish()
	if n := x.entries(x.maps.Conns4); n != 1 {
		x.Errorf("%d connections, want the one that had a packet in time", n)
	}
	x.wantSound("after the wheel")
	x.wantOver()
}

// A connection that is to end earlier has a timer entry, which the wheel reaches
// before the connection names it.
func TestRaceTimerReachedBeforeNamed(t *testing.T) {
	x := newInterleaved(t)
	x.addService(tcpService(vip, "rr"), 1)
	x.establish(client1, vip)
	a, _ := x.stopPacket(lbtest.LbHookPointPOINT_CONN_TICK, testenv.TCP(client1, vip, "R"))
	x.pass(20 * time.Second)
	x.fromClientOn(cpuB, testenv.TCP(stranger, vip, "S"))
	a.finish()
	x.wantSound("after the timer entry was named")
	x.wantOver()
}

// A new connection's timer entry is to enter a slot that the wheel passes meanwhile.
func TestRaceSlotPassed(t *testing.T) {
	x := newInterleaved(t)
	x.addService(tcpService(vip, "rr"), 1)
	a, _ := x.stopPacket(lbtest.LbHookPointPOINT_WHEEL_ENTER, testenv.TCP(client1, vip, "S"))
	x.pass(70 * time.Second)
	a.finish()
	x.wantSound("after the stall")
	x.pass(2 * time.Second)
	if n := x.entries(x.maps.Conns4); n != 0 {
		x.Errorf("%d connections 12 s after their time", n)
	}
	x.wantOver()
}

// A connection is deleted before the CPU that opened it has put its timer entry into a
// slot: the entry is not lost.
func TestRaceRemovedBeforeTimerEntered(t *testing.T) {
	r := newRecyclable(t)
	r.wantOver()
	a, _ := r.stopPacket(lbtest.LbHookPointPOINT_CONN_INSERTED, testenv.TCP(client1, vip, "S"))
	for i := range 2 {
		r.onCPU(cpuB, func() error { return r.DeleteServer(r.service.Key, realServer(i, 1).AddrPort()) })
	}
	a.finish()
	r.wantSound("after the removal")
	r.wantOver()
}

// A packet has found a connection whose element becomes a stranger's before it is read:
// the packet does not go to the stranger's server.
func TestRaceReadOfRecycled(t *testing.T) {
	r := newRecyclable(t)
	r.fromClientOn(cpuB, testenv.TCP(client1, vip, "F"))
	// To the whole path, by a flag that the fast one leaves.
	a, v := r.stopPacket(lbtest.LbHookPointPOINT_CONN_FOUND, testenv.TCP(client1, vip, "S"))
	r.recycle()
	a.finish()
	if v.verdict != redirect {
		t.Errorf("the SYN: %s", v.verdict)
	}
	r.wantSound("after the packet")
	r.wantStranger("SYN_RECV", time.Minute)
	if n := r.entries(r.maps.Conns4); n != 2 {
		t.Errorf("%d connections, want the stranger's and the SYN's", n)
	}
	r.wantOver()
}
