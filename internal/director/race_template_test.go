// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"
	"time"

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
// stranger's template gets its line, and counts a connection that it never had:
// it never expires.
func TestRaceTemplateHoldOfRecycled(t *testing.T) {
	x := newInterleaved(t)
	x.persistent()
	x.fromClientOn(cpuB, testenv.TCP(client1, vip, "S"))
	x.fromClientOn(cpuB, testenv.TCP(client1, vip, "R"))
	index := x.template().Index
	a, _ := x.stopPacket(lbtest.LbHookPointPOINT_TEMPLATE_HOLD, testenv.TCP("10.10.0.2:4321", vip, "S"))
	x.pass(4 * time.Minute)
	if n := x.conns(); n != 1 {
		x.Fatalf("%d connections and templates, when all have expired but the one that is being opened", n)
	}
	x.fromClientOn(cpuB, testenv.TCP(stranger, vip, "S"))
	if at := x.template().Index; at != index {
		x.Fatalf("the stranger's template has line %d, not %d, which was the client's", at, index)
	}
	a.finish()
	x.wantControlled("after the hold")
	x.wantSound("after the hold")
	x.wantOver()
}

// idleTemplate leaves a template that controls nothing any more, and is over in half a minute.
func (x *interleaved) idleTemplate() {
	x.Helper()
	x.persistent()
	x.establishOn(cpuB, client1, vip)
	x.fromClientOn(cpuB, testenv.TCP(client1, vip, "R"))
	x.pass(30 * time.Second)                                // CLOSE lasts 10 s
	if n := x.conns(); n != 1 || x.template().Fwmark != 0 { // "controlled" lies in the same place
		x.Fatalf("%d entries, want a template that controls nothing", n)
	}
}

// A connection is about to hold its client's template, whose time is over before it does so. No
// sweep has come by: the template ends, and a new one is made.
func TestRaceTemplateHoldOfLapsed(t *testing.T) {
	x := newInterleaved(t)
	x.idleTemplate()
	former := x.template()
	a, got := x.stopPacket(lbtest.LbHookPointPOINT_TEMPLATE_HOLD, testenv.TCP("10.10.0.2:4321", vip, "S"))
	x.advance(time.Minute)
	a.finish()
	if got.verdict != redirect {
		t.Errorf("the SYN: %s", got.verdict)
	}
	if now := x.template(); now.Expires == former.Expires || now.Fwmark != 1 {
		t.Errorf("the template is %+v, it was %+v when its time was over: want a new one with one connection", now, former)
	}
	if n := x.conns(); n != 2 {
		t.Errorf("%d entries, want a template and its connection", n)
	}
	x.wantControlled("after the hold")
	x.wantSound("after the hold")
	x.wantOver()
}

// A packet is about to end its client's template, whose time is over. Another CPU's packet, or the
// sweep, ends that before.
func TestRaceTemplateLapsedByTwo(t *testing.T) {
	for name, meanwhile := range map[string]func(*interleaved) int{
		"packet": func(x *interleaved) int {
			if got := x.fromClientOn(cpuB, testenv.TCP("10.10.0.2:4322", vip, "S")); got.verdict != redirect {
				x.Errorf("the other SYN: %s", got.verdict)
			}
			return 3
		},
		"sweep": func(x *interleaved) int { x.sweepTable(); return 2 },
	} {
		t.Run(name, func(t *testing.T) {
			x := newInterleaved(t)
			x.idleTemplate()
			x.advance(time.Minute)
			a, got := x.stopPacket(lbtest.LbHookPointPOINT_CONN_DUE, testenv.TCP("10.10.0.2:4321", vip, "S"))
			want := meanwhile(x)
			a.finish()
			if got.verdict != redirect {
				t.Errorf("the SYN: %s", got.verdict)
			}
			if n := x.conns(); n != want {
				t.Errorf("%d entries, want %d: a template, and its connections", n, want)
			}
			x.wantControlled("after the end")
			x.wantSound("after the end")
			x.wantOver()
		})
	}
}

// template is the one template of the table.
func (x *interleaved) template() (t entry) {
	x.Helper()
	n := 0
	for _, e := range x.allEntries() {
		if e.Flow.Template != 0 {
			t = e
			n++
		}
	}
	if n != 1 {
		x.Fatalf("%d templates, want one", n)
	}
	return t
}

// A connection ends and is about to let its template go, which is set aside
// meanwhile, as its server was deleted. What is set aside
// does not keep counting that connection.
func TestRaceTemplateSetAside(t *testing.T) {
	x := newInterleaved(t)
	s := x.persistent()
	to := x.establish(client1, vip)
	x.fromClientOn(cpuB, testenv.TCP(client1, vip, "R"))
	x.advance(11 * time.Second)
	a := x.stop(lbtest.LbHookPointPOINT_CONN_HOLD, x.sweepRun)
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
	x.sweepTable()
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
	templates, conns := map[bpfobj.LbAddress]uint32{}, map[bpfobj.LbAddress]uint32{}
	for _, e := range x.allEntries() {
		if e.Flow.Template != 0 {
			templates[e.Flow.Src] += e.Fwmark // "controlled" lies in the same place
		} else {
			conns[e.Flow.Src]++
		}
	}
	for client, n := range templates {
		if n != conns[client] {
			x.Errorf("%s: templates of %s count %d connections; there are %d", when, fromAddress(client), n, conns[client])
		}
	}
}
