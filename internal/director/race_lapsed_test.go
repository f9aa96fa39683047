// SPDX-License-Identifier: Apache-2.0

package director

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// The time of an entry is over, and the sweep has not come by yet. For packets and for imports the
// entry does not count any more.

// lapsedStory is a packet that opens a connection.
type lapsedStory struct {
	name       string
	packet     testenv.Packet
	fromServer bool
}

// begins sends it, and says what became of it.
func (s lapsedStory) begins(x *interleaved) verdict {
	x.Helper()
	if s.fromServer {
		return x.fromServerOn(cpuB, s.packet).verdict
	}
	return x.fromClientOn(cpuB, s.packet).verdict
}

// lapsedWorld is a director in virtual time, and packets that open connections there: with a template, a call,
// an entry of replies, and none of it.
func lapsedWorld(t *testing.T) (x *interleaved, all []lapsedStory) {
	x = refusedWorld(t)
	x.turn("hairpin=1")
	x.timeouts(lifetime, bpfobj.LbConnStateTCP_SYN_RECV, bpfobj.LbConnStateSCTP_INIT1, bpfobj.LbConnStateSCTP_INIT)
	all = append(all, lapsedStory{"call", firstOfCall, false})
	for _, f := range families {
		x.serve(service(model.TCP, at(f.vip(1), 80), "rr"), f.real(0, 8080))
		x.serve(service(model.TCP, at(f.vip(2), 80), "rr"), f.real(0, 8080))
		// The first service has the replies of its server without an entry; those of others have them.
		sticky := persistent(service(model.TCP, at(f.vip(3), 80), "rr"))
		sticky.Timeout = lifetime
		x.serve(sticky, f.real(0, 8080))
		client := at(f.client, 1234)
		all = append(all,
			lapsedStory{f.name + " with an entry of replies", testenv.TCP(client, at(f.vip(2), 80), "S"), false},
			lapsedStory{f.name + " with a template", testenv.TCP(client, at(f.vip(3), 80), "S"), false},
			lapsedStory{f.name + " hairpin", testenv.TCP(at(f.server(20), 40000), at(f.vip(1), 80), "S"), true},
		)
	}
	return x, all
}

// A flow whose entries' time is over is opened anew, on every way to do so.
func TestLapsed(t *testing.T) {
	x, stories := lapsedWorld(t)
	for _, f := range families {
		for name, packet := range transports(at(f.client, 999), at(f.vip(9), 80)) {
			for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
				if p.String() == name {
					x.serve(service(p, at(f.vip(9), 80), "rr"), f.real(9, 8080))
				}
			}
			stories = append(stories, lapsedStory{f.name + " " + name, packet, false})
		}
	}
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			sub := *x
			sub.rig = x.in(t)
			if v := s.begins(&sub); v != redirect {
				t.Fatalf("the first packet: %s", v)
			}
			before := sub.allEntries()
			sub.advance(lifetime + time.Second)
			if v := s.begins(&sub); v != redirect {
				t.Errorf("the packet again: %s", v)
			}
			after := sub.allEntries()
			if len(after) != len(before) {
				t.Errorf("%d entries became %d", len(before), len(after))
			}
			for _, e := range after {
				if time.Duration(e.Expires) <= sub.Time() {
					t.Errorf("%s is over still", flowText(e.Flow))
				}
			}
			sub.wantAudited("open again")
			sub.wantSound("open again")
			sub.pass(2 * time.Minute) // templates linger
			sub.wantNothingLeft("in the end")
		})
	}
}

// Likewise, of a server that sends first.
func TestLapsedOutbound(t *testing.T) {
	x := newInterleaved(t)
	s := sipService()
	x.addService(s, 1, 1)
	x.timeouts(lifetime, bpfobj.LbConnStateCONN_UDP)
	packet := testenv.UDP(realServer(0, 1).AddrPort().String(), "10.10.0.2:5060", invite("a@h"))
	for _, what := range []string{"the first packet", "the next one"} {
		got := x.fromServerOn(cpuB, packet)
		if got.verdict != redirect {
			t.Errorf("%s: %s", what, got.verdict)
		} else if src, _, err := testenv.Ends(got.frame); err != nil || src.String() != sipVIP {
			t.Errorf("%s leaves from %s, %v", what, src, err)
		}
		x.wantAudited(what)
		x.advance(lifetime + time.Second)
	}
	x.wantOver()
}

// A server's reply to a connection whose time is over is none.
func TestLapsedReply(t *testing.T) {
	x := newInterleaved(t)
	x.addService(service(model.UDP, vip, "rr"), 1)
	x.timeouts(lifetime, bpfobj.LbConnStateCONN_UDP)
	x.fromClientOn(cpuB, testenv.UDP(client1, vip, "x"))
	reply := testenv.UDP(server0, client1, "x")
	if v := x.fromServerOn(cpuB, reply).verdict; v != redirect {
		t.Errorf("in time: %s", v)
	}
	x.advance(lifetime + time.Second)
	if v := x.fromServerOn(cpuB, reply).verdict; v != pass {
		t.Errorf("later: %s, want pass", v)
	}
	x.wantOver()
}

// An import enters what there is no entry of but one whose time is over.
func TestLapsedImport(t *testing.T) {
	x := newInterleaved(t)
	x.idleTemplate()
	s := x.template().Server
	x.addService(service(model.UDP, vip, "rr"), 1)
	x.timeouts(lifetime, bpfobj.LbConnStateCONN_UDP)
	x.fromClientOn(cpuB, testenv.UDP(client1, vip, "x"))
	x.advance(time.Minute)
	server := netip.AddrPortFrom(serverAddr(0), 8080)
	conn := model.Connection{
		Protocol: model.UDP, State: "UDP", Expires: 10 * time.Minute, // by the clock that virtual time is ahead of
		Client: netip.MustParseAddrPort(client1), Virtual: netip.MustParseAddrPort(vip),
		Server: server, RealServer: server, Service: service(model.UDP, vip, "rr").Key,
	}
	template := model.Connection{
		Protocol: model.TCP, State: "NONE", Expires: 10 * time.Minute, Client: netip.MustParseAddrPort("10.10.0.2:0"), Virtual: netip.MustParseAddrPort(vip),
		Server: server, RealServer: server, Service: tcpService(vip, "rr").Key, Template: true, Timeout: time.Minute,
	}
	x.insert([]model.Connection{template, conn})
	for _, e := range x.allEntries() {
		if time.Duration(e.Expires) <= x.Time() {
			t.Errorf("%s of server %d is over still (the former template's was %d)", flowText(e.Flow), e.Server, s)
		}
	}
	if n := x.conns(); n != 2 {
		t.Errorf("%d entries, want those that were entered", n)
	}
	x.wantSound("imported")
	x.wantOver()
}

// A template is set aside where an earlier one of the same server was, whose time is over.
func TestLapsedAside(t *testing.T) {
	x := newInterleaved(t)
	x.timeouts(lifetime, bpfobj.LbConnStateTCP_SYN_RECV)
	s := x.persistent()
	port := 4000
	syn := func() netip.AddrPort {
		t.Helper()
		port++
		to, err := x.fromClientOn(cpuB, testenv.TCP(at("10.10.0.2", port), vip, "S")).server()
		if err != nil {
			t.Fatalf("SYN %d: %v", port-4000, err)
		}
		return to
	}
	swap := func(gone, back netip.AddrPort) {
		t.Helper()
		x.onCPU(cpuB, func() error { return x.DeleteServer(s.Key, gone) })
		if back.IsValid() {
			x.onCPU(cpuB, func() error {
				return x.AddServer(s.Key, model.Server{Addr: back.Addr(), Port: back.Port(), Weight: 1})
			})
		}
	}
	first := syn()
	swap(first, netip.AddrPort{})
	other := syn() // sets the first server's template aside
	x.pass(lifetime + time.Second)
	aside := x.asides()
	swap(other, first)
	if to := syn(); to != first {
		t.Fatalf("the third SYN goes to %s, want %s", to, first)
	}
	x.pass(lifetime + time.Second)
	x.advance(40 * time.Second) // a template set aside lasts a minute
	swap(first, other)
	if to := syn(); to != other {
		t.Errorf("the last SYN goes to %s, want %s", to, other)
	}
	again := x.asides()
	if len(aside) != 1 || !slices.ContainsFunc(again, func(e entry) bool { return e.Flow == aside[0].Flow && time.Duration(e.Expires) > x.Time() }) {
		t.Errorf("%+v, then %+v were set aside: want the first of these again", aside, again)
	}
	x.wantControlled("set aside again")
	x.wantSound("set aside again")
	x.wantOver()
}

// asides are the templates that were set aside.
func (x *interleaved) asides() (all []entry) {
	x.Helper()
	for _, e := range x.allEntries() {
		if e.Flow.Template != 0 && e.Flow.Dport == invalidPort {
			all = append(all, e)
		}
	}
	return all
}
