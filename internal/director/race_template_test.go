// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/bpfobj/lbtest"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// persistent is a service whose clients stay with their server for a minute.
func (x *interleaved) persistent() model.Service {
	x.Helper()
	s := tcpService(vip, "rr")
	s.Flags, s.Timeout = model.Persistent, time.Minute
	x.addService(s, 1, 1)
	return s
}

// A connection is about to hold its client's template, which expires meanwhile; a
// stranger's template gets the element, and counts a connection that it never had:
// it never expires.
func TestRaceTemplateHoldOfRecycled(t *testing.T) {
	x := newInterleaved(t)
	x.persistent()
	x.fromClientOn(cpuB, testenv.TCP(client1, vip, "S"))
	x.fromClientOn(cpuB, testenv.TCP(client1, vip, "R"))
	a, _ := x.stopPacket(lbtest.LbHookPointPOINT_TEMPLATE_HOLD, testenv.TCP("10.10.0.2:4321", vip, "S"))
	x.pass(4 * time.Minute)
	if n := x.entries(x.maps.Conns4); n != 0 {
		x.Fatalf("%d connections and templates, when all have expired", n)
	}
	x.fromClientOn(cpuB, testenv.TCP(stranger, vip, "S"))
	a.finish()
	x.wantControlled("after the hold")
	x.wantOver()
}

// A connection ends and is about to let its template go, which is set aside
// meanwhile, as its server was deleted. What is set aside has the same element, and
// does not keep counting that connection.
func TestRaceTemplateSetAside(t *testing.T) {
	x := newInterleaved(t)
	s := x.persistent()
	to := x.establish(client1, vip)
	x.fromClientOn(cpuB, testenv.TCP(client1, vip, "R"))
	x.advance(11 * time.Second)
	a := x.stop(lbtest.LbHookPointPOINT_CONN_HOLD, func() error {
		_, err := x.wheel.Run(&ebpf.RunOptions{Data: make([]byte, 14)})
		return err
	})
	x.onCPU(cpuB, func() error { return x.DeleteServer(s.Key, to) })
	x.fromClientOn(cpuB, testenv.TCP("10.10.0.2:4321", vip, "S"))
	a.finish()
	x.wantControlled("after the release")
	x.wantOver()
}

// A template is being set aside, as its server was deleted: what takes its place is
// there, and it still lives. Its connection ends in between, and is counted nowhere.
func TestRaceTemplateReleasedWhileSetAside(t *testing.T) {
	x := newInterleaved(t)
	s := x.persistent()
	to := x.establish(client1, vip)
	x.fromClientOn(cpuB, testenv.TCP(client1, vip, "R"))
	x.onCPU(cpuB, func() error { return x.DeleteServer(s.Key, to) })
	a, _ := x.stopPacket(lbtest.LbHookPointPOINT_TEMPLATE_INVALIDATE, testenv.TCP("10.10.0.2:4321", vip, "S"))
	x.advance(11 * time.Second)
	x.turnWheel()
	a.finish()
	x.wantControlled("after the template was set aside")
	x.wantOver()
}

// Another CPU's template was first, and is removed before it is held: a new one is made.
func TestRaceTemplateOpenedTwice(t *testing.T) {
	x := newInterleaved(t)
	x.persistent()
	var got result
	a := x.stop(lbtest.LbHookPointPOINT_CONN_INSERT, func() (err error) {
		got, err = x.clientRun(testenv.TCP(client1, vip, "S"))
		return err
	})
	x.fromClientOn(cpuB, testenv.TCP("10.10.0.2:4321", vip, "S"))
	x.fromClientOn(cpuB, testenv.TCP("10.10.0.2:4321", vip, "R"))
	a.finish()
	if got.verdict != redirect {
		x.Errorf("the SYN: %s", got.verdict)
	}
	x.wantControlled("after both")
	x.wantSound("after both")
	x.wantOver()
}

// wantControlled checks that templates count the connections that they control:
// here there is one client network for each.
func (x *interleaved) wantControlled(when string) {
	x.Helper()
	var key bpfobj.LbFlow4
	var conn bpfobj.LbConn4
	templates, conns := map[uint32]uint32{}, map[uint32]uint32{}
	it := x.maps.Conns4.Iterate()
	for it.Next(&key, &conn) {
		if key.Template != 0 {
			templates[key.Src] += conn.Fwmark // "controlled" lies in the same place
		} else {
			conns[key.Src]++
		}
	}
	x.must(it.Err())
	for client, n := range templates {
		if n != conns[client] {
			x.Errorf("%s: templates of %s count %d connections; there are %d", when, addrOf4(client), n, conns[client])
		}
	}
}
