// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"

	"imbang/internal/bpfobj/lbtest"
	"imbang/internal/model"
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
	x.wantCopies(first, &second)
	x.wantOver()
}

// wantCopies checks that the copies of a first packet go to one server, though the second one may
// have been dropped, as the first had a server chosen then.
func (x *interleaved) wantCopies(first, second *result) {
	x.Helper()
	here, err := first.server()
	x.must(err)
	if second.verdict == drop {
		return
	}
	there, err := second.server()
	x.must(err)
	if here != there {
		x.Errorf("of one flow's first packet one copy goes to %s, the other to %s", here, there)
	}
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

// A has ended the old connection, and B has a copy of what opens the new one.
func TestRaceOpenedByAnother(t *testing.T) {
	overAndAgain(t, lbtest.LbHookPointPOINT_CONN_ENDED)
}

// A has ended the old connection: its line stays the flow's, whatever is opened meanwhile.
func TestRaceLineOfEnded(t *testing.T) {
	for _, at := range []lbtest.LbHookPoint{lbtest.LbHookPointPOINT_CONN_ENDED, lbtest.LbHookPointPOINT_CONN_INSERT} {
		r := newRecyclable(t)
		r.fromClientOn(cpuB, testenv.TCP(client1, vip, "R"))
		a, got := r.stopPacket(at, testenv.TCP(client1, vip, "S"))
		if v := r.fromClientOn(cpuB, testenv.TCP(stranger, vip, "S")); v.verdict != redirect {
			t.Errorf("the stranger's SYN: %s", v.verdict)
		}
		want := r.conn(testenv.TCP(stranger, vip, "S"))
		a.finish()
		if got.verdict != redirect {
			t.Errorf("the SYN: %s", got.verdict)
		}
		r.wantSame("after both were opened", want)
		if is := r.conn(testenv.TCP(client1, vip, "S")); is.Index != r.former.Index || incarnation(&is.LbConn) == incarnation(&r.former.LbConn) {
			t.Errorf("the new connection has entry %d, incarnation %d; the one before had %d, %d", is.Index, incarnation(&is.LbConn),
				r.former.Index, incarnation(&r.former.LbConn))
		}
		if n := r.conns(); n != 2 {
			t.Errorf("%d connections, want the stranger's and the SYN's", n)
		}
		r.wantSound("after both were opened")
		r.wantOver()
	}
}

// Two CPUs have the first packet of one flow at once, and B opens its connection before A has
// reserved the entry, or A has: the flow has one entry, and no copy goes to another server.
func TestRaceOpenedByTwo(t *testing.T) {
	for _, family := range families {
		for name := range transports(client1, vip) {
			t.Run(family.name+"/"+name, func(t *testing.T) {
				openedByTwo(t, family, name, false, lbtest.LbHookPointPOINT_SERVICE_FOUND, 1234)
				openedByTwo(t, family, name, false, lbtest.LbHookPointPOINT_CONN_INSERT, 1234)
			})
			// A is about to enter the template; B has another flow of it.
			t.Run(family.name+"/"+name+"/persistent", func(t *testing.T) {
				openedByTwo(t, family, name, true, lbtest.LbHookPointPOINT_SERVICE_FOUND, 1234)
				openedByTwo(t, family, name, true, lbtest.LbHookPointPOINT_CONN_INSERT, 1235)
			})
		}
	}
}

func openedByTwo(t *testing.T, f family, name string, persistence bool, point lbtest.LbHookPoint, port int) {
	x := newInterleaved(t)
	vip, packets := at(f.vip(1), 80), [2]testenv.Packet{}
	for i, p := range []int{1234, port} {
		packets[i] = transports(at(f.client, p), vip)[name]
	}
	want := 1 + port - 1234
	for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		if p.String() != name {
			continue
		}
		s := service(p, vip, "rr")
		if persistence {
			s, want = persistent(s), want+1
		}
		x.serve(s, f.real(0, 8080), f.real(1, 8080), f.real(2, 8080))
	}
	a, first := x.stopPacket(point, packets[0])
	second := x.fromClientOn(cpuB, packets[1])
	if reserved := point == lbtest.LbHookPointPOINT_CONN_INSERT && port == 1234; (second.verdict == drop) != reserved {
		t.Errorf("the second packet: %s", second.verdict)
	}
	a.finish()
	x.wantCopies(first, &second)
	if n := x.conns(); n != want {
		t.Errorf("%d entries, want %d", n, want)
	}
	x.wantControlled("after both")
	x.wantSound("after both")
	x.wantOver()
}
