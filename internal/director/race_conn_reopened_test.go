// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"

	"imbang/internal/bpfobj/lbtest"
	"imbang/internal/testenv"
)

// Two CPUs have the same SYN of a client that uses a port again: both find the
// connection that is over, end it and open another. Only one does each.

// overAndAgain is a connection that is over, and a SYN of its client that is
// stopped on CPU A while CPU B has the same SYN.
func overAndAgain(t *testing.T, at lbtest.LbHookPoint) {
	x := newInterleaved(t)
	x.addService(tcpService(vip, "rr"), 1, 1, 1)
	x.establish(client1, vip)
	x.fromClientOn(cpuB, testenv.TCP(client1, vip, "R"))
	syn := testenv.TCP(client1, vip, "S")
	a, first := x.stopPacket(at, syn)
	second := x.fromClientOn(cpuB, syn)
	a.finish()
	x.wantSound("after two SYNs")
	here, err := first.server()
	x.must(err)
	there, err := second.server()
	x.must(err)
	if here != there {
		x.Errorf("of one connection's SYN one copy goes to %s, the other to %s", here, there)
	}
	x.wantOver()
}

// A is about to end what B ended: it takes the old server's connection away
// twice, and the new one is lost.
func TestRaceEndedTwice(t *testing.T) {
	overAndAgain(t, lbtest.LbHookPointPOINT_CONN_KILL)
}

// A has yet to look for the connection that it is to end, and finds the new one.
func TestRaceEndsTheSuccessor(t *testing.T) {
	overAndAgain(t, lbtest.LbHookPointPOINT_SERVICE_FOUND)
}

// A has ended the old connection, and B opens the new one.
func TestRaceOpenedByAnother(t *testing.T) {
	overAndAgain(t, lbtest.LbHookPointPOINT_CONN_ENDED)
}
