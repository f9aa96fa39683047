// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// listedAs is what Linux lists of a connection: neither service nor method, and how long
// it has left in place of its timeout.
func listedAs(client, virtual, server string, left time.Duration) model.Connection {
	c := toldOf(client, virtual, server, "ESTABLISHED")
	c.Timeout, c.Expires = 0, left
	return c
}

// supplement enters entries and expects an error of each, nil for those that are entered.
func (r *rig) supplement(want []error, entries ...model.Connection) (guessed []bool) {
	r.Helper()
	errs, guessed, err := r.Supplement(entries)
	r.must(err)
	for i, err := range errs {
		if !errors.Is(err, want[i]) || (err == nil) != (want[i] == nil) {
			r.Errorf("%+v: %v, want %v", entries[i], err, want[i])
		}
	}
	return guessed
}

// What a backup was told stays as it is, in whatever it differs from an earlier listing;
// what it was not told is entered with what it has left, and its packets go on.
func TestSupplement(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newRig(t, small)
			web, told, idle := at(f.vip(1), 80), at(f.client, 1234), at(f.client, 1235)
			r.serve(tcpService(web, "rr"), f.real(0, 8080), f.real(1, 8080))
			first, second := at(f.server(0), 8080), at(f.server(1), 8080)
			r.synchronize(toldOf(told, web, second, "CLOSE_WAIT"))
			r.supplement([]error{ErrConnectionExists, nil, model.ErrNoServer, model.ErrNoService},
				listedAs(told, web, first, time.Minute), listedAs(idle, web, first, 77*time.Second),
				listedAs(at(f.client, 1), web, at(f.server(2), 8080), time.Minute),
				listedAs(at(f.client, 1), at(f.vip(9), 80), first, time.Minute))
			if c := r.connection(told); c.Server.String() != second || c.State != "CLOSE_WAIT" {
				t.Errorf("what was told became %+v", c)
			}
			c := r.connection(idle)
			if c.Server.String() != first || c.State != "ESTABLISHED" || c.Expires > 77*time.Second || c.Expires < 62*time.Second || c.InPackets != 3 {
				t.Errorf("what was listed became %+v", c)
			}
			if got := r.fromClient(testenv.TCP(idle, web, "A")); got.verdict != redirect {
				t.Errorf("its packet: %s", got.verdict)
			}
			if got := r.fromServer(testenv.TCP(first, idle, "PA")); got.verdict != redirect {
				t.Errorf("its reply: %s", got.verdict)
			}
			r.supplement([]error{ErrConnectionExists}, listedAs(idle, web, first, time.Minute))
			r.wantClean("after the listing")
		})
	}
}

// A listing does not say marks: a mark rule does, or a server that only one service has.
// Where several have it the entry is one of the lowest mark's.
func TestSupplementFindsMarks(t *testing.T) {
	r := newRig(t, small)
	web := tcpService(vip, "rr")
	r.addService(web, 1, 1)
	for mark, servers := range map[uint32][]int{9: {0, 2}, 5: {2, 3}, 7: {1, 3, 4}} {
		key := model.MarkKey(mark, model.IPv4)
		r.must(r.AddService(model.Service{Key: key, Scheduler: "rr", Netmask: model.FullMask(model.IPv4)}))
		for _, n := range servers {
			r.must(r.AddServer(key, model.Server{Addr: serverAddr(n), Weight: 1}))
		}
	}
	r.must(r.Mark(MarkRule{Prefix: netip.MustParsePrefix("10.20.0.0/16"), Mark: 7}), r.Mark(MarkRule{Prefix: netip.MustParsePrefix("10.20.0.1/32"), Mark: 9}))
	for i, c := range []struct {
		virtual string
		server  int
		mark    uint32
		guessed bool
	}{
		{"10.20.0.1:80", 0, 9, false},  // by the longest rule, as a packet
		{"10.20.0.1:80", 1, 0, false},  // the service of the rule has no such server, that of the address has
		{"10.20.0.9:443", 4, 7, false}, // by the other rule
		{"10.20.0.9:443", 0, 9, false}, // the only one with this server
		{"10.99.0.9:443", 2, 5, true},  // one of two
		{"10.99.0.9:443", 4, 7, false},
	} {
		client := fmt.Sprintf("10.10.0.2:%d", 1000+i)
		port := 443
		if c.mark == 0 {
			port = 8080
		}
		e := listedAs(client, c.virtual, fmt.Sprintf("%s:%d", serverAddr(c.server), port), time.Minute)
		if c.virtual == vip && c.mark != 0 {
			e.Server = netip.AddrPortFrom(serverAddr(c.server), 80)
		}
		guessed := r.supplement([]error{nil}, e)
		if got := r.connection(client); got.Service.Mark != c.mark || guessed[0] != c.guessed {
			t.Errorf("%s to %s: service %s, guessed %v, want mark %d, %v", c.virtual, e.Server, got.Service, guessed[0], c.mark, c.guessed)
		}
	}
	r.wantClean("after the listing")
}

// The template of a client holds what it controls, also if its line came later; a
// connection to another server than the template's is entered without it. A template has
// its service's timeout.
func TestSupplementOfPersistentServices(t *testing.T) {
	r := newRig(t, small)
	svc := persistent(tcpService(vip, "rr"))
	r.addService(svc, 1, 1)
	r.addService(sipService(), 1)
	template := listedAs("10.10.0.2:0", vip, "172.16.0.10:8080", 5*time.Minute)
	template.Template, template.State = true, "ASSURED"
	call := listedAs("10.10.0.2:0", sipVIP, "172.16.0.10:8080", time.Minute)
	call.Template, call.Protocol, call.State, call.Engine, call.EngineData = true, model.UDP, "NONE", "sip", "a@h"
	r.supplement([]error{nil, nil, nil, nil}, template, call,
		listedAs("10.10.0.2:1", vip, "172.16.0.10:8080", time.Minute), listedAs("10.10.0.2:2", vip, "172.16.0.11:8080", time.Minute))
	for client, want := range map[string]bool{"10.10.0.2:1": true, "10.10.0.2:2": false} {
		if got := r.connection(client); (got.Control != nil) != want {
			t.Errorf("%s is controlled by %+v, want one: %v", client, got.Control, want)
		}
	}
	for _, c := range r.exported() {
		if c.Template && c.Engine == "" && (c.Connections != 1 || c.Timeout != svc.Timeout) {
			t.Errorf("the template is %+v, want one connection and %v", c, svc.Timeout)
		}
	}
	r.supplement([]error{ErrConnectionExists, ErrConnectionExists}, template, call)
	r.wantClean("after the listing")
}
