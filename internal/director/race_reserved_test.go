// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"testing"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/bpfobj/lbtest"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// A packet that would open a connection has the entry of it before a server is chosen, so a copy of
// it on another CPU meanwhile has no server chosen, and none is bound to it.

// flowsBefore are what a flow may have in the table when its SYN comes.
var flowsBefore = map[string]func(*interleaved){
	"none": func(*interleaved) {},
	"outdated": func(x *interleaved) {
		x.establish(client1, vip)
		x.fromClientOn(cpuB, testenv.TCP(client1, vip, "R"))
	},
	"lapsed": func(x *interleaved) {
		x.establish(client1, vip)
		x.fromClientOn(cpuB, testenv.TCP(client1, vip, "R"))
		x.advance(11 * time.Second)
	},
}

func TestRaceReserved(t *testing.T) {
	for before, prepare := range flowsBefore {
		for _, scheduler := range []string{"rr", "wrr", "wlc"} {
			for _, at := range []lbtest.LbHookPoint{lbtest.LbHookPointPOINT_CHOOSE, lbtest.LbHookPointPOINT_CONN_OPEN} {
				t.Run(fmt.Sprintf("%s/%s/%d", before, scheduler, at), func(t *testing.T) {
					x := newInterleaved(t)
					s := tcpService(vip, scheduler)
					x.addService(s, 3, 1, 2)
					prepare(x)
					reserved(x, s.Key, at)
				})
			}
		}
	}
	t.Run("persistent", func(t *testing.T) {
		x := newInterleaved(t)
		s := persistent(tcpService(vip, "rr"))
		x.addService(s, 3, 1, 2)
		reserved(x, s.Key, lbtest.LbHookPointPOINT_CONN_OPEN)
	})
}

// reserved stops a client's SYN on CPU A, while CPU B has copies of it.
func reserved(x *interleaved, k model.ServiceKey, at lbtest.LbHookPoint) {
	x.Helper()
	syn := testenv.TCP(client1, vip, "S")
	a, first := x.stopPacket(at, syn)
	was, loads := x.stateOf(k), x.loadsOf(k)
	for range 2 {
		if got := x.fromClientOn(cpuB, syn); got.verdict == redirect {
			x.Errorf("a copy is forwarded to a server that is being chosen")
		}
	}
	if is := x.stateOf(k); is.RrCursor != was.RrCursor || is.WrrCursor != was.WrrCursor {
		x.Errorf("copies move the cursor from %d, %#x to %d, %#x", was.RrCursor, was.WrrCursor, is.RrCursor, is.WrrCursor)
	}
	if is := x.loadsOf(k); fmt.Sprint(is) != fmt.Sprint(loads) {
		x.Errorf("copies change what servers count from %v to %v", loads, is)
	}
	a.finish()
	here, err := first.server()
	x.must(err)
	there, err := x.fromClientOn(cpuB, syn).server()
	x.must(err)
	if here != there {
		x.Errorf("the first SYN goes to %s, its copy to %s", here, there)
	}
	x.wantSound("in the end")
	x.wantOver()
}

// loadsOf are what the servers of a service count.
func (x *interleaved) loadsOf(k model.ServiceKey) (loads []bpfobj.LbLoad) {
	x.Helper()
	for i := range 3 {
		id, ok := x.serverID(k, realServer(i, 1).AddrPort())
		if !ok {
			x.Fatalf("server %d is not there", i)
		}
		loads = append(loads, x.load(id))
	}
	return loads
}

// A server takes its last connection: a copy of the SYN is not refused, as the connection is its
// own.
func TestRaceReservedThreshold(t *testing.T) {
	x := newInterleaved(t)
	s := tcpService(vip, "rr")
	server := realServer(0, 1)
	server.Upper = 1
	x.serve(s, server)
	syn := testenv.TCP(client1, vip, "S")
	a, first := x.stopPacket(lbtest.LbHookPointPOINT_CONN_INSERT, syn)
	if got := x.fromClientOn(cpuB, syn); got.verdict != drop {
		t.Errorf("a copy of the SYN: %s, want that it is dropped", got.verdict)
	}
	a.finish()
	if first.verdict != redirect {
		t.Errorf("the SYN: %s", first.verdict)
	}
	if got := x.fromClientOn(cpuB, syn); got.verdict != redirect {
		t.Errorf("the SYN once more: %s", got.verdict)
	}
	x.wantSound("in the end")
	x.wantOver()
}

// No connection comes of what was reserved: the entry is given back, and its flow can be opened.
func TestReservedWithdrawn(t *testing.T) {
	for _, family := range families {
		for before, prepare := range flowsBefore {
			if family.name != "IPv4" && before != "none" {
				continue
			}
			t.Run(family.name+"/"+before, func(t *testing.T) {
				x := newInterleaved(t)
				service := service(model.TCP, at(family.vip(1), 80), "rr")
				server := family.real(0, 8080)
				x.serve(service, server)
				prepare(x)
				server.Weight = 0
				x.must(x.EditServer(service.Key, server))
				client := at(family.client, 1234)
				if family.name == "IPv4" {
					client = client1
				}
				syn := testenv.TCP(client, at(family.vip(1), 80), "S")
				x.fromClientOn(cpuB, syn)
				if n := x.conns(); n != 0 {
					t.Errorf("%d connections, and there is no server", n)
				}
				x.wantSound("without a server")
				server.Weight = 1
				x.must(x.EditServer(service.Key, server))
				if got := x.fromClientOn(cpuB, syn); got.verdict != redirect {
					t.Errorf("the SYN, when there is a server: %s", got.verdict)
				}
				x.wantSound("in the end")
				x.wantOver()
			})
		}
	}
}
