// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// invalidCall exports a director that has an invalid template of a call; `to` is another
// one with the same service.
func invalidCall(t *testing.T) (exported []model.Connection, to *rig) {
	t.Helper()
	call := sipService()
	var worlds [2]*rig
	for i := range worlds {
		worlds[i] = newRig(t, small)
		worlds[i].addService(call, 1)
	}
	from, to := worlds[0], worlds[1]
	from.turn("expire_quiescent_template=1")
	from.fromClient(testenv.UDP(sipClient(1), sipVIP, invite("a@h")))
	from.must(from.EditServer(call.Key, realServer(0, 0)))
	from.fromClient(testenv.UDP(sipClient(1)+"1", sipVIP, invite("a@h"))) // invalidates it
	return from.exported(), to
}

// An import that is repeated enters an invalid template of a call once.
func TestImportInvalidCallAgain(t *testing.T) {
	exported, to := invalidCall(t)
	to.insert(exported)
	before := len(to.exported())
	for range 3 {
		errs, err := to.Insert(exported)
		to.must(err)
		for i, err := range errs {
			if !errors.Is(err, ErrConnectionExists) {
				t.Errorf("again: %s of %s, flags %v: %v, want %v", exported[i].Virtual, exported[i].Client, exported[i].Flags.Names(), err, ErrConnectionExists)
			}
		}
	}
	if got := len(to.exported()); got != before {
		t.Errorf("%d entries after repeated imports, %d after the first", got, before)
	}
}

// A server's address written as a mapped one does not hide its family: masquerading does
// not lead from IPv6 to IPv4.
func TestImportMappedServer(t *testing.T) {
	r := newRig(t, small)
	s := service(model.TCP, "[2001:db8::20:1]:80", "rr")
	r.must(r.AddService(s), r.AddServer(s.Key, model.Server{Addr: serverAddr(0), Port: 80, Weight: 1, Forward: model.Tunnel}))
	server := netip.AddrPortFrom(netip.AddrFrom16(serverAddr(0).As16()), 80)
	c := model.Connection{
		Protocol: model.TCP, State: "ESTABLISHED", Expires: time.Minute, Client: netip.MustParseAddrPort("[2001:db8::10:2]:1234"),
		Virtual: netip.MustParseAddrPort("[2001:db8::20:1]:80"), Server: server, RealServer: server, Service: s.Key, Forward: model.Masquerade,
	}
	errs, err := r.Insert([]model.Connection{c})
	r.must(err)
	if !errors.Is(errs[0], ErrBadConnection) {
		t.Errorf("entered: %v", errs[0])
	}
	for c, err := range r.Connections(ConnectionFilter{}) {
		t.Log(c.Client, c.Virtual, c.Server, c.Forward, err)
	}
}

// The same invalid template of a call twice in one batch is entered once.
func TestImportInvalidCallTwiceInABatch(t *testing.T) {
	exported, to := invalidCall(t)
	var twice []model.Connection
	for _, c := range exported {
		if c.Template && c.Flags&model.ConnInvalid != 0 {
			twice = append(twice, c, c)
		}
	}
	errs, err := to.Insert(twice)
	to.must(err)
	for i, err := range errs {
		t.Log(i, err)
	}
	invalid := 0
	for _, c := range to.exported() {
		if c.Template && c.Flags&model.ConnInvalid != 0 {
			invalid++
		}
	}
	if invalid != 1 {
		t.Errorf("%d invalid templates, want 1", invalid)
	}
}
