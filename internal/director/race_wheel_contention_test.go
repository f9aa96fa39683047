// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj/lbtest"
	"imbang/internal/testenv"
)

// Lists of timer entries that CPUs change at once. Whatever another CPU does to
// a list, entering and freeing succeed at once; taking may lose, and goes on to the
// next list. Each retry loop has one try here.

// contend stops an operation where it is about to change a list, and lets CPU B
// have its turn twice.
func (x *interleaved) contend(at lbtest.LbHookPoint, fn func() error, inBetween func(i int)) {
	x.Helper()
	x.SetTries(1)
	a := x.stop(at, fn)
	inBetween(0)
	inBetween(1)
	a.finish()
	x.SetTries(0)
}

// wheelOnA is a turn of the wheel.
func (x *interleaved) wheelOnA() error {
	_, err := x.wheel.Run(&ebpf.RunOptions{Data: make([]byte, 14)})
	return err
}

// opens has CPU B open the i-th of some connections.
func (x *interleaved) opens(i int) {
	x.Helper()
	if got := x.fromClientOn(cpuB, testenv.TCP(nthClient(1000+i), vip, "S")); got.verdict != redirect {
		x.Fatalf("another connection: %s", got.verdict)
	}
}

// The wheel looks at a connection that lives on, and is to put its timer entry
// into a later slot, into which CPU B puts others.
func TestRaceWheelKeepsLiveConnection(t *testing.T) {
	x := newInterleaved(t)
	x.addService(tcpService(vip, "rr"), 1)
	x.establish(client1, vip)
	x.advance(33 * time.Second) // a slot is 32 s away at most
	x.contend(lbtest.LbHookPointPOINT_WHEEL_ENTER, x.wheelOnA, x.opens)
	if n := x.entries(x.maps.Conns4); n != 3 {
		x.Errorf("%d connections, want 3: an established one and two that were opened", n)
	}
	x.wantSound("after the wheel")
	x.wantOver()
}

// The wheel gives a timer entry back to the free list, of which CPU B takes others.
func TestRaceWheelGivesEntryBack(t *testing.T) {
	x := newInterleaved(t)
	x.addService(tcpService(vip, "rr"), 1)
	for i := range 4 {
		x.fromClientOn(cpuB, testenv.TCP(nthClient(i), vip, "S"))
	}
	x.pass(2 * time.Minute)
	x.fromClientOn(cpuB, testenv.TCP(client1, vip, "S"))
	x.pass(56 * time.Second)
	x.advance(16 * time.Second)
	x.contend(lbtest.LbHookPointPOINT_ENTRY_GIVE, x.wheelOnA, x.opens)
	x.wantSound("after the wheel")
	x.wantOver()
}

// A connection requires a timer entry, of which CPU B takes others; there are as many
// as it takes.
func TestRaceEntryForConnection(t *testing.T) {
	x := newInterleaved(t)
	x.addService(tcpService(vip, "rr"), 1)
	for i := range 4 {
		x.fromClientOn(cpuB, testenv.TCP(nthClient(i), vip, "S"))
	}
	x.pass(2 * time.Minute)
	for i, free := range x.freeLists() { // all were taken once
		free.Fresh = 2 * x.maps.TimerEntries4.MaxEntries()
		x.must(x.maps.FreeLists.Put(uint32(i), free))
	}
	var got result
	x.contend(lbtest.LbHookPointPOINT_ENTRY_TAKE, func() (err error) {
		got, err = x.clientRun(testenv.TCP(client1, vip, "S"))
		return err
	}, x.opens)
	if got.verdict != redirect {
		x.Errorf("the connection's SYN: %s, though %d timer entries are free", got.verdict, x.freeEntries())
	}
	x.wantSound("after the connection")
}

// A new connection puts its timer entry into a slot, into which CPU B puts others.
func TestRaceEntryIntoSlot(t *testing.T) {
	x := newInterleaved(t)
	x.addService(tcpService(vip, "rr"), 1)
	var got result
	x.contend(lbtest.LbHookPointPOINT_WHEEL_ENTER, func() (err error) {
		got, err = x.clientRun(testenv.TCP(client1, vip, "S"))
		return err
	}, x.opens)
	if got.verdict != redirect {
		x.Errorf("the connection's SYN: %s, though the table has room", got.verdict)
	}
	x.wantSound("after the connection")
	x.wantOver()
}
