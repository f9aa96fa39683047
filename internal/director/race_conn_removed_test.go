// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"
	"time"

	"imbang/internal/bpfobj/lbtest"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// The sweep has come to a connection that is over, and another CPU's packet, whose clock is a
// little behind, prolongs it before the sweep ends it.
func TestRaceExpiryOfRevived(t *testing.T) {
	x := newInterleaved(t)
	x.addService(tcpService(vip, "rr"), 1)
	x.establish(client1, vip)
	x.fromClientOn(cpuB, testenv.TCP(client1, vip, "R"))
	const more = time.Second
	x.advance(10*time.Second + more/2) // CLOSE lasts 10 s
	a := x.stop(lbtest.LbHookPointPOINT_CONN_DUE, x.sweepRun)
	x.advance(-more)
	x.fromClientOn(cpuB, testenv.TCP(client1, vip, "A"))
	a.finish()
	if n := x.conns(); n != 1 {
		x.Errorf("%d connections, want the one that had a packet in time", n)
	}
	x.wantSound("after the sweep")
	x.wantOver()
}

// A packet of a connection is about to prolong it, and the sweep of another CPU ends it. The packet
// does not revive it.
func TestRaceProlongsEnded(t *testing.T) {
	for name, at := range map[string]lbtest.LbHookPoint{"fast path": lbtest.LbHookPointPOINT_CONN_COUNT, "whole path": lbtest.LbHookPointPOINT_CONN_EXTEND} {
		t.Run(name, func(t *testing.T) {
			x := newInterleaved(t)
			x.addService(tcpService(vip, "rr"), 1)
			x.establish(client1, vip)
			x.advance(time.Second)
			packet := testenv.TCP(client1, vip, "A")
			if at == lbtest.LbHookPointPOINT_CONN_EXTEND {
				packet = packet.Options(1) // which the fast path leaves
			}
			a, _ := x.stopPacket(at, packet)
			x.advance(15 * time.Minute)
			x.sweepTable()
			a.finish()
			if n := x.conns(); n != 0 {
				t.Errorf("%d connections after the end of the only one", n)
			}
			x.wantSound("after the packet")
			x.wantOver()
		})
	}
}

// Likewise, and the packet is about to change the state of the connection.
func TestRaceMovesEnded(t *testing.T) {
	for name, at := range map[string]lbtest.LbHookPoint{"fast path": lbtest.LbHookPointPOINT_CONN_FAST, "whole path": lbtest.LbHookPointPOINT_CONN_MOVE} {
		t.Run(name, func(t *testing.T) {
			x := newInterleaved(t)
			x.addService(tcpService(vip, "rr"), 1)
			x.establish(client1, vip)
			packet := testenv.TCP(client1, vip, "FA")
			if at == lbtest.LbHookPointPOINT_CONN_MOVE {
				packet = packet.Options(1)
			}
			a, _ := x.stopPacket(at, packet)
			x.advance(16 * time.Minute)
			x.sweepTable()
			a.finish()
			if n := x.conns(); n != 0 {
				t.Errorf("%d connections after the end of the only one", n)
			}
			x.wantSound("after the packet")
			x.wantOver()
		})
	}
}

// Two packets end a connection whose time is over, before the sweep comes by: one of them does,
// and their flow has one connection then.
func TestRaceLapsedByTwo(t *testing.T) {
	x := newInterleaved(t)
	x.addService(tcpService(vip, "rr"), 1, 1, 1)
	x.establish(client1, vip)
	x.fromClientOn(cpuB, testenv.TCP(client1, vip, "R"))
	x.advance(11 * time.Second)
	syn := testenv.TCP(client1, vip, "S")
	a, first := x.stopPacket(lbtest.LbHookPointPOINT_CONN_DUE, syn)
	second := x.fromClientOn(cpuB, syn)
	a.finish()
	here, err := first.server()
	x.must(err)
	there, err := second.server()
	x.must(err)
	if here != there {
		t.Errorf("of one connection's SYN one copy goes to %s, the other to %s", here, there)
	}
	if n := x.conns(); n != 1 {
		t.Errorf("%d connections of one flow", n)
	}
	x.wantSound("after two SYNs")
	x.wantOver()
}

// The sweep ends a connection whose time is over while a packet of its flow opens the next one:
// between both nothing of the flow is entered.
func TestRaceLapsedBySweep(t *testing.T) {
	x := newInterleaved(t)
	x.addService(tcpService(vip, "rr"), 1, 1)
	x.establish(client1, vip)
	x.fromClientOn(cpuB, testenv.TCP(client1, vip, "R"))
	x.advance(11 * time.Second)
	syn := testenv.TCP(client1, vip, "S")
	a, got := x.stopPacket(lbtest.LbHookPointPOINT_CONN_DUE, syn)
	x.sweepTable()
	if n := x.conns(); n != 0 {
		t.Errorf("%d connections after the sweep", n)
	}
	a.finish()
	if got.verdict != redirect {
		t.Errorf("the SYN: %s", got.verdict)
	}
	if n := x.conns(); n != 1 {
		t.Errorf("%d connections, want that of the SYN", n)
	}
	x.wantSound("after the SYN")
	x.wantOver()
}

// A new connection is entered when its time is over already: it is found to be so, and ends.
func TestRaceEnteredLate(t *testing.T) {
	x := newInterleaved(t)
	x.addService(tcpService(vip, "rr"), 1)
	a, _ := x.stopPacket(lbtest.LbHookPointPOINT_CONN_INSERT, testenv.TCP(client1, vip, "S"))
	x.pass(70 * time.Second)
	a.finish()
	x.wantSound("after the stall")
	if got := x.fromClientOn(cpuB, testenv.TCP(client1, vip, "A")); got.verdict == redirect {
		t.Errorf("an ACK: %s by a connection whose time is over", got.verdict)
	}
	x.sweepTable()
	if n := x.conns(); n != 0 {
		x.Errorf("%d connections 10 s after their time", n)
	}
	x.wantOver()
}

// A connection is removed when it has just been entered, before the CPU that opened it has done
// all that follows.
func TestRaceRemovedWhileOpened(t *testing.T) {
	for _, family := range families {
		t.Run(family.name, func(t *testing.T) {
			x := newInterleaved(t)
			x.turn("expire_nodest_conn=1")
			vip := at(family.vip(1), 80)
			s := service(model.TCP, vip, "rr")
			x.serve(s, family.real(0, 8080))
			a, _ := x.stopPacket(lbtest.LbHookPointPOINT_CONN_INSERTED, testenv.TCP(at(family.client, 1234), vip, "S"))
			x.only()
			x.onCPU(cpuB, func() error { return x.DeleteServer(s.Key, family.real(0, 8080).AddrPort()) })
			if n := x.conns(); n != 0 {
				t.Fatalf("%d connections, when their server was deleted", n)
			}
			a.finish()
			x.wantSound("after the removal")
			x.wantOver()
		})
	}
}

// A packet has found a connection whose line becomes a stranger's before it is read:
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
	if n := r.conns(); n != 2 {
		t.Errorf("%d connections, want the stranger's and the SYN's", n)
	}
	r.wantOver()
}

// Likewise of IPv6, whose entry takes two lines.
func TestRaceReadOfRecycledIPv6(t *testing.T) {
	x := newInterleaved(t)
	x.turn("expire_nodest_conn=1")
	vip := at(ipv6.vip(1), 80)
	s := service(model.TCP, vip, "rr")
	x.serve(s, ipv6.real(0, 8080), ipv6.real(1, 8080))
	client, other := at(ipv6.client, 1234), at(ipv6.client, 4321)
	to := x.establishOn(cpuB, client, vip)
	x.fromClientOn(cpuB, testenv.TCP(client, vip, "F"))
	index := x.only().Index
	a, v := x.stopPacket(lbtest.LbHookPointPOINT_CONN_FOUND, testenv.TCP(client, vip, "S"))
	x.onCPU(cpuB, func() error { return x.DeleteServer(s.Key, to) })
	if got := x.fromClientOn(cpuB, testenv.TCP(other, vip, "S")); got.verdict != redirect {
		t.Fatalf("the other client's SYN: %s", got.verdict)
	}
	want := x.only()
	if want.Index != index {
		t.Fatalf("the other client's connection has line %d, not %d", want.Index, index)
	}
	a.finish()
	if again, err := v.server(); err != nil || again == to {
		t.Errorf("the SYN goes to %s, whose server was deleted, %v", again, err)
	}
	if all := x.allEntries(); len(all) != 2 || all[0] != want && all[1] != want {
		t.Errorf("%+v, want %+v and the SYN's", all, want)
	}
	x.wantSound("after the packet")
	x.wantOver()
}

// only is the one entry of the table.
func (r *rig) only() entry {
	r.Helper()
	all := r.allEntries()
	if len(all) != 1 {
		r.Fatalf("%d entries, want one", len(all))
	}
	return all[0]
}
