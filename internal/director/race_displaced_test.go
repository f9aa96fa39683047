// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"math/bits"
	"net/netip"
	"testing"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/bpfobj/lbtest"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// A connection in a full table displaces an unproven one, whose line it takes. Sweeps and other
// packets may come before, between and afterwards.

// crowdedSizes are those of a table that is soon full.
var crowdedSizes = Sizes{Services: 16, Servers: 16, Connections: 64}

// crowdedClient is the i-th client of a table that is full.
func crowdedClient(i int) string { return fmt.Sprintf("10.10.9.%d:%d", i, 2000) }

// newCrowded has a table full of connections that one datagram opened each, and says how many.
func newCrowded(t *testing.T) (x *interleaved, room int) {
	x = newInterleavedSized(t, crowdedSizes)
	x.addService(service(model.UDP, vip, "rr"), 1)
	return x, x.crowd(func(i int) testenv.Packet { return testenv.UDP(crowdedClient(i), vip, "x") })
}

// crowd opens as many connections as there is room for, on CPU B.
func (x *interleaved) crowd(packet func(i int) testenv.Packet) (room int) {
	x.Helper()
	for ; x.freeLines(model.IPv4) > 0; room++ {
		if got := x.fromClientOn(cpuB, packet(room)); got.verdict != redirect {
			x.Fatalf("connection %d: %s, and %d lines are free", room, got.verdict, x.freeLines(model.IPv4))
		}
	}
	if n := x.conns(); n != room || n < int(crowdedSizes.Connections) {
		x.Fatalf("%d entries in a full table after %d connections, want %d at least", n, room, crowdedSizes.Connections)
	}
	x.advance(VirtualTick)
	x.sweepTable() // which learns of the crowd
	return room
}

// freeLines is how many more entries of a family the connection table has room for: in its blocks,
// and in those that it may still take.
func (r *rig) freeLines(f model.Family) (n int) {
	r.Helper()
	p, table, err := r.blocks()
	r.must(err)
	kind, lines := bpfobj.LbBlockKindBLOCK_ENTRIES4, blockEntries
	if f == model.IPv6 {
		kind, lines = bpfobj.LbBlockKindBLOCK_ENTRIES6, blockEntries/2
	}
	n = max(0, int(p.Bound)-int(table.Taken+table.Spare)) * lines
	for _, b := range r.allBlocks() {
		if b.kind() == kind {
			n += bits.OnesCount64(b.free() &^ unowned)
		}
	}
	return n
}

// settle lets the displacing packet continue, and all be over.
func (x *interleaved) settle(s *stopped, when string, room int) {
	x.Helper()
	s.finish()
	if n := x.displaced(); n == 0 {
		x.Errorf("%s: nothing was displaced", when)
	}
	x.wantSound(when)
	if n := x.conns(); n != room {
		x.Errorf("%s: %d connections, want %d", when, n, room)
	}
	x.wantOver()
}

// It has chosen the connection that ends; the sweep comes to all of them, and keeps them.
func TestRaceDisplacedWhileSweepComes(t *testing.T) {
	x, room := newCrowded(t)
	a, got := x.stopPacket(lbtest.LbHookPointPOINT_CONN_KILL, testenv.UDP(client1, vip, "x"))
	x.advance(33 * time.Second)
	x.sweepTable()
	x.settle(a, "the sweep came before the end", room)
	if got.verdict != redirect {
		t.Errorf("the packet: %s", got.verdict)
	}
}

// Likewise, and the sweep ends all of them: none is ended twice.
func TestRaceDisplacedWhileSwept(t *testing.T) {
	x, _ := newCrowded(t)
	a, _ := x.stopPacket(lbtest.LbHookPointPOINT_CONN_KILL, testenv.UDP(client1, vip, "x"))
	x.advance(6 * time.Minute) // UDP lasts 5
	x.sweepTable()
	a.finish()
	if n := x.displaced(); n != 0 {
		t.Errorf("%d connections were displaced that had ended", n)
	}
	x.wantSound("all had ended")
	if got := x.fromClientOn(cpuA, testenv.UDP(client1, vip, "x")); got.verdict != redirect {
		t.Errorf("the packet again: %s, with %d lines free", got.verdict, x.freeLines(model.IPv4))
	}
	x.wantOver()
}

// Likewise, and the connection is answered twice meanwhile: it is not the one that ends.
func TestRaceDisplacedWhileProven(t *testing.T) {
	x, room := newCrowded(t)
	a, _ := x.stopPacket(lbtest.LbHookPointPOINT_CONN_KILL, testenv.UDP(client1, vip, "x"))
	for i := range room {
		x.fromClientOn(cpuB, testenv.UDP(crowdedClient(i), vip, "x"))
		x.fromServerOn(cpuB, testenv.UDP(server0, crowdedClient(i), "x"))
	}
	a.finish()
	if n := x.displaced(); n != 0 {
		t.Errorf("%d proven connections were displaced", n)
	}
	x.wantSound("all were proven")
	x.wantOver()
}

// It has ended one, and another CPU's packet takes the line before the new connection is in the
// table: it ends another.
func TestRaceDisplacedRoomTaken(t *testing.T) {
	x, room := newCrowded(t)
	// The first arrival finds no room.
	var got result
	a := x.stopTimes(lbtest.LbHookPointPOINT_SERVICE_FOUND, 2, func() (err error) {
		got, err = x.clientRun(testenv.UDP(client1, vip, "x"))
		return err
	})
	a.hook.Release(1)
	x.must(a.hook.Await(2))
	if n := x.displaced(); n != 1 {
		t.Errorf("%d connections were displaced by the first attempt", n)
	}
	if v := x.fromClientOn(cpuB, testenv.UDP(stranger, vip, "x")); v.verdict != redirect {
		t.Errorf("the other packet: %s", v.verdict)
	}
	if n := x.displaced(); n != 1 {
		t.Errorf("%d connections were displaced, though there was room for one more", n)
	}
	x.settle(a, "another packet took the room", room)
	if got.verdict != redirect {
		t.Errorf("the packet: %s", got.verdict)
	}
}

// Packets of the service that has most displace its own connections alone, though it has few.
func TestDisplacedOfOwnCrowd(t *testing.T) {
	x := newInterleavedSized(t, crowdedSizes)
	const services = 15
	for i := range services {
		x.serve(service(model.UDP, nthVIP(i), "rr"), realServer(i, 1))
	}
	x.crowd(func(i int) testenv.Packet { return testenv.UDP(crowdedClient(i), nthVIP(max(0, i-1)%services), "x") })
	others := func() (n int) {
		for _, e := range x.allEntries() {
			if fromAddressOf(e.Flow.Dst, e.Flow.Family) != netip.MustParseAddrPort(nthVIP(0)).Addr() {
				n++
			}
		}
		return n
	}
	before := others()
	for i := range 200 {
		x.fromClientOn(cpuB, testenv.UDP(fmt.Sprintf("10.10.8.%d:%d", i, 2000), nthVIP(0), "x"))
	}
	if n := others(); n != before {
		t.Errorf("other services have %d connections, had %d", n, before)
	}
	x.wantSound("crowded")
	x.wantOver()
}

// Two CPUs displace at once: each ends another one.
func TestRaceDisplacedByTwo(t *testing.T) {
	x, room := newCrowded(t)
	a, _ := x.stopPacket(lbtest.LbHookPointPOINT_CONN_KILL, testenv.UDP(client1, vip, "x"))
	for i := range room {
		x.fromClientOn(cpuB, testenv.UDP(fmt.Sprintf("10.10.8.%d:%d", i, 2000), vip, "x"))
	}
	a.finish()
	x.wantSound("two at once")
	if n := x.conns(); n > room {
		t.Errorf("%d connections, there is room for %d", n, room)
	}
	x.wantOver()
}
