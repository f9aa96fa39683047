// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"
	"time"

	"imbang/internal/bpfobj/lbtest"
	"imbang/internal/testenv"
)

// A connection that takes the place of one that is over has its timer entry. The
// wheel may come to that while the table has neither, and take it away.

func stallBeforeInsert(t *testing.T, at lbtest.LbHookPoint) {
	x := newInterleaved(t)
	x.addService(tcpService(vip, "rr"), 1)
	x.establish(client1, vip)
	x.fromClientOn(cpuB, testenv.TCP(client1, vip, "R"))
	a, _ := x.stopPacket(at, testenv.TCP(client1, vip, "S"))
	x.advance(11 * time.Second) // CLOSE lasts 10 s
	x.turnWheel()
	a.finish()
	x.wantSound("after the stall")
	x.wantOver()
}

// The connection has seen that the entry serves: it keeps one that is gone.
func TestRaceStallWithInheritedTimer(t *testing.T) {
	stallBeforeInsert(t, lbtest.LbHookPointPOINT_CONN_INSERT)
}

// It looks at the entry after the stall, and takes one of its own.
func TestRaceStallBeforeInheritance(t *testing.T) {
	stallBeforeInsert(t, lbtest.LbHookPointPOINT_CONN_ENDED)
}

// The next client's connection gets the number of the entry that is gone: both
// name it, and only one of them expires.
func TestRaceInheritedTimerOfTwo(t *testing.T) {
	x := newInterleaved(t)
	x.addService(tcpService(vip, "rr"), 1)
	x.establish(client1, vip)
	x.fromClientOn(cpuB, testenv.TCP(client1, vip, "R"))
	a, _ := x.stopPacket(lbtest.LbHookPointPOINT_CONN_INSERT, testenv.TCP(client1, vip, "S"))
	x.advance(11 * time.Second)
	x.turnWheel()
	x.fromClientOn(cpuB, testenv.TCP(stranger, vip, "S"))
	a.finish()
	x.wantSound("after the stall")
	x.wantOver()
}
