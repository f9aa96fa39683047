// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"imbang/internal/bpfobj/lbtest"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// importing stops the import of an entry at a hook point; its error is there after finish.
func (x *interleaved) importing(at lbtest.LbHookPoint, c model.Connection) (*stopped, *error) {
	x.Helper()
	refused := new(error)
	return x.stop(at, func() error {
		errs, err := x.Insert([]model.Connection{c})
		*refused = errs[0]
		return err
	}), refused
}

// A connection is about to be entered, and its client's packet opens it: the packet's
// one stays, and is counted once at its server and at its template.
func TestRaceImportAfterPacket(t *testing.T) {
	x := newInterleaved(t)
	s := x.persistent()
	server := netip.AddrPortFrom(serverAddr(0), 8080)
	template := model.Connection{
		Protocol: model.TCP, State: "NONE", Expires: time.Minute, Client: netip.MustParseAddrPort("10.10.0.2:0"), Virtual: netip.MustParseAddrPort(vip),
		Server: server, RealServer: server, Service: s.Key, Template: true, Timeout: time.Minute,
	}
	x.insert([]model.Connection{template})
	c := template
	c.Template, c.Timeout, c.State, c.Client = false, 0, "ESTABLISHED", netip.MustParseAddrPort(client1)
	c.Control = &model.Control{Kind: model.TemplatePort, Netmask: model.FullMask(model.IPv4)}
	a, refused := x.importing(lbtest.LbHookPointPOINT_CONN_INSERT, c)
	if to, err := x.fromClientOn(cpuB, testenv.TCP(client1, vip, "S")).server(); err != nil || to != server {
		t.Errorf("the packet goes to %s, %v", to, err)
	}
	a.finish()
	if !errors.Is(*refused, ErrConnectionExists) {
		t.Errorf("the import: %v", *refused)
	}
	x.wantControlled("after the import")
	x.wantSound("after the import")
	x.wantOver()
}

// Likewise of a hairpin: that of the packet's connection stays.
func TestRaceImportOfHairpin(t *testing.T) {
	x := newInterleaved(t)
	s := tcpService(vip, "rr")
	x.addService(s, 1)
	x.turn("hairpin=1")
	server := netip.AddrPortFrom(serverAddr(0), 8080)
	client := "172.16.0.30:40000"
	c := model.Connection{
		Protocol: model.TCP, State: "ESTABLISHED", Expires: time.Minute, Client: netip.MustParseAddrPort(client), Virtual: netip.MustParseAddrPort(vip),
		Server: server, RealServer: server, Service: s.Key, Flags: model.ConnHairpin, Hairpin: netip.MustParseAddrPort("172.16.0.1:2000"),
	}
	a, refused := x.importing(lbtest.LbHookPointPOINT_CONN_INSERT, c)
	opened := x.fromServerOn(cpuB, testenv.TCP(client, vip, "S"))
	a.finish()
	if !errors.Is(*refused, ErrConnectionExists) {
		t.Errorf("the import: %v", *refused)
	}
	director, _, err := testenv.Ends(opened.frame)
	x.must(err)
	back := testenv.TCP(server0, director.String(), "SA")
	wantForwarded(t, x.fromServerOn(cpuB, back), testenv.TCP(vip, client, "SA").TTL(63).MACs(serverDevMAC, serverMAC))
	if n := x.hairpins(); n != 1 {
		t.Errorf("%d hairpins", n)
	}
	x.wantSound("after the import")
	x.pass(10 * time.Minute)
	if n := x.linesInUse(); n != 0 {
		t.Errorf("in the end: %d lines are in use", n)
	}
}

// Likewise, and the packet was scheduled to another server than the import's: whichever
// connection there is in the end, its server's replies reach the client.
func TestRaceImportOfHairpinToAnother(t *testing.T) {
	const client = "172.16.0.30:40000"
	for n := range 2 {
		x := newInterleaved(t)
		s := tcpService(vip, "rr")
		x.addService(s, 1, 1)
		x.turn("hairpin=1")
		server := netip.AddrPortFrom(serverAddr(n), 8080)
		a, _ := x.importing(lbtest.LbHookPointPOINT_CONN_INSERT, model.Connection{
			Protocol: model.TCP, State: "ESTABLISHED", Expires: time.Minute, Client: netip.MustParseAddrPort(client), Virtual: netip.MustParseAddrPort(vip),
			Server: server, RealServer: server, Service: s.Key, Flags: model.ConnHairpin, Hairpin: netip.MustParseAddrPort("172.16.0.1:2000"),
		})
		x.fromServerOn(cpuB, testenv.TCP(client, vip, "S"))
		a.finish()
		again := x.fromServerOn(cpuB, testenv.TCP(client, vip, "A"))
		director, to, err := testenv.Ends(again.frame)
		x.must(err)
		back := x.fromServerOn(cpuB, testenv.TCP(to.String(), director.String(), "A"))
		if from, _, err := testenv.Ends(back.frame); err != nil || from.String() != vip {
			t.Errorf("import to server %d: the reply of %s to %s leaves from %s, %v", n, to, director, from, err)
		}
		x.wantSound("after the import")
	}
}
