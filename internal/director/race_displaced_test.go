// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"testing"
	"time"

	"imbang/internal/bpfobj/lbtest"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// A connection in a full table displaces an unproven one and gets its timer entry, which then
// has the new flow. The wheel may come to that entry before, between and afterwards.

const crowdedRoom = 64

// newCrowded has a table full of connections that one datagram opened each.
func newCrowded(t *testing.T) *interleaved {
	x := newInterleavedSized(t, Sizes{Services: 16, Servers: 16, Connections: crowdedRoom})
	x.addService(service(model.UDP, vip, "rr"), 1)
	for i := range crowdedRoom {
		x.fromClientOn(cpuB, testenv.UDP(fmt.Sprintf("10.10.9.%d:%d", i, 2000), vip, "x"))
	}
	x.advance(WheelTick)
	x.turnWheel() // which learns of the crowd
	return x
}

// settle lets the displacing packet go on, and all be over.
func (x *interleaved) settle(s *stopped, when string) {
	x.Helper()
	s.finish()
	if n := x.displaced(); n == 0 {
		x.Errorf("%s: nothing was displaced", when)
	}
	x.wantSound(when)
	if n := x.entries(x.maps.Conns4); n != crowdedRoom {
		x.Errorf("%s: %d connections, want %d", when, n, crowdedRoom)
	}
	x.wantOver()
}

// It has chosen the connection that ends; the wheel comes to all of them, and keeps them.
func TestRaceDisplacedWhileWheelComes(t *testing.T) {
	x := newCrowded(t)
	a, _ := x.stopPacket(lbtest.LbHookPointPOINT_CONN_KILL, testenv.UDP(client1, vip, "x"))
	x.advance(33 * time.Second)
	x.turnWheel()
	x.settle(a, "the wheel came before the end")
}

// Likewise, and the connection is answered twice meanwhile: it is not the one that ends.
func TestRaceDisplacedWhileProven(t *testing.T) {
	x := newCrowded(t)
	a, _ := x.stopPacket(lbtest.LbHookPointPOINT_CONN_KILL, testenv.UDP(client1, vip, "x"))
	for i := range crowdedRoom {
		client := fmt.Sprintf("10.10.9.%d:%d", i, 2000)
		x.fromClientOn(cpuB, testenv.UDP(client, vip, "x"))
		x.fromServerOn(cpuB, testenv.UDP(server0, client, "x"))
	}
	a.finish()
	if n := x.displaced(); n != 0 {
		t.Errorf("%d proven connections were displaced", n)
	}
	x.wantSound("all were proven")
	x.wantOver()
}

// It has the timer entry, and the wheel takes it away before the new connection is in the
// table.
func TestRaceDisplacedTimerTaken(t *testing.T) {
	x := newCrowded(t)
	// The first arrival finds no room.
	a := x.stopTimes(lbtest.LbHookPointPOINT_CONN_INSERT, 2, func() error {
		_, err := x.clientRun(testenv.UDP(client1, vip, "x"))
		return err
	})
	a.hook.Release(1)
	x.must(a.hook.Await(2))
	x.advance(33 * time.Second)
	x.turnWheel()
	x.settle(a, "the wheel came before the insertion")
}

// Two CPUs displace at once: each ends another one.
func TestRaceDisplacedByTwo(t *testing.T) {
	x := newCrowded(t)
	a, _ := x.stopPacket(lbtest.LbHookPointPOINT_CONN_KILL, testenv.UDP(client1, vip, "x"))
	for i := range crowdedRoom {
		x.fromClientOn(cpuB, testenv.UDP(fmt.Sprintf("10.10.8.%d:%d", i, 2000), vip, "x"))
	}
	a.finish()
	x.wantSound("two at once")
	if n := x.entries(x.maps.Conns4); n > crowdedRoom {
		t.Errorf("%d connections, there is room for %d", n, crowdedRoom)
	}
	x.wantOver()
}
