// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
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

// A has ended the old connection, and a stranger's gets its line before A opens the new one.
func TestRaceLineOfEnded(t *testing.T) {
	for _, at := range []lbtest.LbHookPoint{lbtest.LbHookPointPOINT_CONN_ENDED, lbtest.LbHookPointPOINT_CONN_INSERT} {
		r := newRecyclable(t)
		r.fromClientOn(cpuB, testenv.TCP(client1, vip, "R"))
		a, got := r.stopPacket(at, testenv.TCP(client1, vip, "S"))
		r.openStranger("it had ended")
		want := r.conn(testenv.TCP(stranger, vip, "S"))
		a.finish()
		if got.verdict != redirect {
			t.Errorf("the SYN: %s", got.verdict)
		}
		r.wantSame("after both were opened", want)
		if n := r.conns(); n != 2 {
			t.Errorf("%d connections, want 2", n)
		}
		r.wantSound("after both were opened")
		r.wantOver()
	}
}

// Two CPUs have the first packet of one flow at once: the flow has one entry, both copies go to its
// server, and the line that was taken for the other one is free again.
func TestRaceOpenedByTwo(t *testing.T) {
	for _, family := range families {
		for name := range transports(client1, vip) {
			t.Run(family.name+"/"+name, func(t *testing.T) { openedByTwo(t, family, name, false, 1) })
			// A is about to enter the template, or behind that the connection.
			for arrival := 1; arrival <= 2; arrival++ {
				t.Run(fmt.Sprintf("%s/%s/persistent, entry %d", family.name, name, arrival), func(t *testing.T) {
					openedByTwo(t, family, name, true, arrival)
				})
			}
		}
	}
}

func openedByTwo(t *testing.T, f family, name string, persistence bool, arrival int) {
	x := newInterleaved(t)
	vip := at(f.vip(1), 80)
	packet, want := transports(at(f.client, 1234), vip)[name], 1
	for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		if p.String() != name {
			continue
		}
		s := service(p, vip, "rr")
		if persistence {
			s, want = persistent(s), 2
		}
		x.serve(s, f.real(0, 8080), f.real(1, 8080), f.real(2, 8080))
	}
	var first result
	a := x.stopTimes(lbtest.LbHookPointPOINT_CONN_INSERT, arrival, func() (err error) {
		first, err = x.clientRun(packet)
		return err
	})
	a.hook.Release(arrival - 1)
	x.must(a.hook.Await(arrival))
	second := x.fromClientOn(cpuB, packet)
	a.finish()
	here, err := first.server()
	x.must(err)
	there, err := second.server()
	x.must(err)
	if here != there {
		t.Errorf("of one flow's first packet one copy goes to %s, the other to %s", here, there)
	}
	if n := x.conns(); n != want {
		t.Errorf("%d entries, want %d", n, want)
	}
	x.wantControlled("after both")
	x.wantSound("after both")
	x.wantOver()
}
