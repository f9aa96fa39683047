// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// synchronize applies entries, and expects no error of any.
func (r *rig) synchronize(entries ...model.Connection) {
	r.Helper()
	errs, err := r.Synchronize(entries)
	r.must(err)
	r.must(errs...)
}

// toldOf is what a master tells of a connection: neither service nor server's own port.
func toldOf(client, virtual, server, state string) model.Connection {
	return model.Connection{
		Protocol: model.TCP, State: state, Timeout: 15 * time.Minute, Client: netip.MustParseAddrPort(client),
		Virtual: netip.MustParseAddrPort(virtual), Server: netip.MustParseAddrPort(server),
	}
}

// The life of a connection on a backup: entered, changed and counted, replaced by one to
// another server, and not changed by what is told of its predecessor.
func TestSynchronize(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newRig(t, small)
			web, client := at(f.vip(1), 80), at(f.client, 1234)
			s := tcpService(web, "rr")
			r.serve(s, f.real(0, 8080), f.real(1, 8080))
			first, second := at(f.server(0), 8080), at(f.server(1), 8080)
			want := func(server, state string, active, inactive uint32, left time.Duration) {
				t.Helper()
				c := r.connection(client)
				if c.Server.String() != server || c.State != state || c.Control != nil || c.Expires > left || c.Expires < left-20*time.Second {
					t.Errorf("the connection is %+v, want %s to %s for %v", c, state, server, left)
				}
				a, i := r.counts(s.Key, c.Server.Addr())
				if a != active || i != inactive {
					t.Errorf("%d active, %d inactive, want %d, %d", a, i, active, inactive)
				}
				r.wantClean("after " + state)
			}
			r.synchronize(toldOf(client, web, first, "ESTABLISHED"))
			want(first, "ESTABLISHED", 1, 0, 15*time.Minute)
			if c := r.connection(client); c.InPackets != 3 {
				t.Errorf("it has %d packets, want sync_threshold", c.InPackets)
			}
			closing := toldOf(client, web, first, "TIME_WAIT")
			closing.Timeout = 2 * time.Minute
			r.synchronize(closing)
			want(first, "TIME_WAIT", 0, 1, 2*time.Minute)
			r.synchronize(toldOf(client, web, first, "ESTABLISHED"))
			want(first, "ESTABLISHED", 1, 0, 15*time.Minute)
			r.synchronize(toldOf(client, web, second, "ESTABLISHED"))
			want(second, "ESTABLISHED", 1, 0, 15*time.Minute)
			r.synchronize(closing) // of the earlier one
			want(second, "ESTABLISHED", 1, 0, 15*time.Minute)
			// The client's packets go on, and those of the server.
			if got := r.fromClient(testenv.TCP(client, web, "A")); got.verdict != redirect {
				t.Errorf("a packet of a synchronized connection: %s", got.verdict)
			}
			if got := r.fromServer(testenv.TCP(second, client, "PA")); got.verdict != redirect {
				t.Errorf("a reply: %s", got.verdict)
			}
			if conns := r.status(s.Key).Stats.Conns; conns != 0 {
				t.Errorf("a backup counted %d connections as opened", conns)
			}
		})
	}
}

// A shortened time is the entry's own at once: it ends by itself.
func TestSynchronizeEnds(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	c := toldOf(client1, vip, "172.16.0.10:8080", "ESTABLISHED")
	r.synchronize(c)
	c.State, c.Timeout = "CLOSE", time.Second
	r.synchronize(c)
	r.atLast(time.Minute, "the connection ends", func() bool { return r.tableEntries(0) == 0 })
	r.wantClean("after the end")
}

// Templates: assured and not, kept with their server, of marks and of calls.
func TestSynchronizeTemplates(t *testing.T) {
	r := newRig(t, small)
	r.addService(persistent(tcpService(vip, "rr")), 1, 1)
	marked := persistent(model.Service{Key: model.MarkKey(5, model.IPv4), Scheduler: "rr", Netmask: model.FullMask(model.IPv4)})
	r.must(r.AddService(marked), r.AddServer(marked.Key, model.Server{Addr: serverAddr(0), Weight: 1}))
	r.addService(sipService(), 1)
	template := toldOf("10.10.0.2:0", vip, "172.16.0.10:8080", "NONE")
	template.Template, template.Timeout = true, 50*time.Second
	mark := toldOf("10.10.0.2:0", "0.0.0.5:0", "172.16.0.10:0", "ASSURED")
	mark.Template, mark.Protocol, mark.Service.Mark = true, 0, 5
	call := toldOf("10.10.0.2:0", sipVIP, "172.16.0.10:8080", "NONE")
	call.Template, call.Protocol, call.Engine, call.EngineData = true, model.UDP, "sip", "a@h"
	r.synchronize(template, mark, call)
	states := func() (all string) {
		for _, c := range r.exported() {
			all += fmt.Sprintf("%s %s %s %s %.0fs\n", c.Virtual, c.Server, c.State, c.EngineData, c.Timeout.Seconds())
		}
		return all
	}
	wantHas := func(lines ...string) {
		t.Helper()
		got := states()
		for _, line := range lines {
			if !containsLine(got, line) {
				t.Errorf("no line %q in\n%s", line, got)
			}
		}
		r.wantClean("with templates")
	}
	wantHas("10.20.0.1:80 172.16.0.10:8080 NONE  50s", "0.0.0.5:0 172.16.0.10:0 ASSURED  900s", sipVIP+" 172.16.0.10:8080 NONE a@h 900s")
	template.State, template.Timeout, template.Server = "ASSURED", time.Minute, netip.MustParseAddrPort("172.16.0.11:8080")
	call.State = "ASSURED"
	r.synchronize(template, call)
	wantHas("10.20.0.1:80 172.16.0.10:8080 ASSURED  60s", sipVIP+" 172.16.0.10:8080 ASSURED a@h 900s")
	// A client of the template, and a call, stay with their server.
	for range 2 {
		if got, err := r.fromClient(testenv.TCP("10.10.0.2:1", vip, "S")).server(); err != nil || got.String() != "172.16.0.10:8080" {
			t.Errorf("the template's client goes to %v, %v", got, err)
		}
	}
}

// What cannot be entered says why.
func TestSynchronizeRefuses(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	entries := []model.Connection{
		toldOf(client1, farVIP, "172.16.0.10:8080", "ESTABLISHED"),
		toldOf(client1, vip, "172.16.0.99:8080", "ESTABLISHED"),
		toldOf(client1, vip, "172.16.0.10:8081", "ESTABLISHED"),
		toldOf(client1, vip, "172.16.0.10:8080", "UDP"),
		toldOf(client1, vip, "172.16.0.10:8080", "ESTABLISHED"),
	}
	errs, err := r.Synchronize(entries)
	r.must(err)
	for i, want := range []error{model.ErrNoService, model.ErrNoServer, model.ErrNoServer, ErrBadConnection, nil} {
		if !errors.Is(errs[i], want) {
			t.Errorf("entry %d: %v, want %v", i, errs[i], want)
		}
	}
	r.wantClean("with an entry whose service is not there")
}

// An entry whose server or service is not there is in the table, unused, and bound when
// they are added.
func TestSynchronizeUnbound(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.addService(s, 1)
	server, other := "172.16.0.99:8080", tcpService(farVIP, "rr")
	entries := []model.Connection{
		toldOf(client1, vip, server, "ESTABLISHED"), toldOf(client1, farVIP, server, "ESTABLISHED"),
	}
	for range 2 { // the second time it is there
		errs, err := r.Synchronize(entries)
		r.must(err)
		if !errors.Is(errs[0], model.ErrNoServer) || !errors.Is(errs[1], model.ErrNoService) {
			t.Errorf("%v", errs)
		}
		if n := r.tableEntries(0); n != 2 {
			t.Fatalf("%d entries", n)
		}
		r.wantClean("unbound")
	}
	for _, to := range []string{vip, farVIP} {
		if got := r.fromClient(testenv.TCP(client1, to, "A")); got.verdict == redirect {
			t.Errorf("a packet to %s is forwarded to a server that is not in the table", to)
		}
	}
	add := model.Server{Addr: netip.MustParseAddrPort(server).Addr(), Port: 8080, Weight: 1}
	r.must(r.AddServer(s.Key, add), r.AddService(other), r.AddServer(other.Key, add))
	for _, k := range []model.ServiceKey{s.Key, other.Key} {
		if active, inactive := r.counts(k, add.Addr); active != 1 || inactive != 0 {
			t.Errorf("%s: %d active, %d inactive", k, active, inactive)
		}
		if got := r.fromClient(testenv.TCP(client1, netip.AddrPortFrom(k.Addr, k.Port).String(), "A")); got.verdict != redirect {
			t.Errorf("a packet to %s: %s", k, got.verdict)
		}
		if got, err := r.Synchronize(entries); err != nil || errors.Join(got...) != nil {
			t.Errorf("later records: %v, %v", got, err)
		}
	}
	r.wantClean("bound")
}

// A connection whose server was deleted goes on as the master tells, also of a mark, whose
// servers have no port.
func TestSynchronizeDeletedServer(t *testing.T) {
	r := newRig(t, small)
	s := model.Service{Key: model.MarkKey(5, model.IPv4), Scheduler: "rr", Netmask: model.FullMask(model.IPv4)}
	server := model.Server{Addr: serverAddr(0), Weight: 1}
	r.must(r.AddService(s), r.AddServer(s.Key, server))
	c := toldOf(client1, vip, "172.16.0.10:80", "ESTABLISHED")
	c.Service.Mark = 5
	r.synchronize(c)
	r.must(r.DeleteServer(s.Key, netip.AddrPortFrom(server.Addr, 0)))
	c.State, c.Timeout = "TIME_WAIT", 2*time.Minute
	errs, err := r.Synchronize([]model.Connection{c})
	r.must(err)
	if !errors.Is(errs[0], model.ErrNoServer) {
		t.Errorf("%v", errs)
	}
	if got := r.connection(client1); got.State != "TIME_WAIT" {
		t.Errorf("it is %+v", got)
	}
	r.must(r.AddServer(s.Key, server))
	if active, inactive := r.counts(s.Key, server.Addr); active != 0 || inactive != 1 {
		t.Errorf("%d active, %d inactive", active, inactive)
	}
	r.wantClean("with the server back")
}

// A data connection of a persistent FTP service has another port.
func TestSynchronizeFTP(t *testing.T) {
	r := newRig(t, small)
	s := persistent(tcpService("10.20.0.1:21", "rr"))
	r.must(r.AddService(s), r.AddServer(s.Key, model.Server{Addr: serverAddr(0), Port: 21, Weight: 1}))
	errs, err := r.Synchronize([]model.Connection{toldOf(client1, "10.20.0.1:30000", "172.16.0.10:30000", "ESTABLISHED")})
	r.must(err)
	if got := r.connection(client1); got.Server.Port() != 30000 {
		t.Errorf("it is %+v, %v", got, errs)
	}
	r.wantClean("with a data connection")
}

// Messages that name servers without end do not fill the table of servers.
func TestSynchronizeUnboundIsBounded(t *testing.T) {
	r := newRig(t, Sizes{Services: 64, Servers: 2048, Connections: 1 << 14})
	s := tcpService(vip, "rr")
	r.addService(s, 1)
	var entries []model.Connection
	for i := range 2 * mostUnbound {
		entries = append(entries, toldOf(nthClient(i), vip, fmt.Sprintf("172.17.%d.%d:80", i/250, i%250+1), "ESTABLISHED"))
	}
	errs, err := r.Synchronize(entries)
	r.must(err)
	for i, err := range errs {
		if !errors.Is(err, model.ErrNoServer) {
			t.Fatalf("entry %d: %v", i, err)
		}
	}
	if n := r.tableEntries(0); n != mostUnbound {
		t.Errorf("%d entries, want %d", n, mostUnbound)
	}
	for i := range 100 {
		r.must(r.AddServer(s.Key, realServer(i+1, 1)))
	}
}

// What a director tells and another applies makes equal tables.
func TestTellAndSynchronize(t *testing.T) {
	master, backup := newRig(t, small), newRig(t, small)
	for _, r := range []*rig{master, backup} {
		r.addService(tcpService(vip, "rr"), 1, 1)
		r.addService(persistent(service(model.UDP, vip, "rr")), 1, 1)
		route := tcpService(farVIP, "rr")
		r.must(r.AddService(route), r.AddServer(route.Key, model.Server{Addr: serverAddr(2), Port: 53, Weight: 1, Forward: model.Route}))
	}
	master.synchronized(0, 1)
	teller := master.tell(TellRule{})
	for i := range 20 {
		client := nthClient(i)
		master.establish(client, vip)
		master.fromClient(testenv.UDP(client, vip, "x"))
		master.fromClient(testenv.TCP(client, farVIP, "S"))
		master.fromClient(testenv.TCP(client, farVIP, "A"))
		if i%3 == 0 {
			master.fromClient(testenv.TCP(client, vip, "FA"))
		}
	}
	for _, one := range master.received(teller) {
		backup.synchronize(one.Conn)
	}
	short := func(r *rig) map[string]bool {
		all := map[string]bool{}
		for _, c := range r.exported() {
			all[fmt.Sprintf("%s %s %s %s %s %v %t", c.Protocol.Word(), c.State, c.Client, c.Virtual, c.Server, c.Forward, c.Template)] = true
		}
		return all
	}
	want, got := short(master), short(backup)
	for line := range want {
		if !got[line] {
			t.Errorf("the backup lacks %s", line)
		}
	}
	if len(want) != len(got) {
		t.Errorf("%d entries, want %d", len(got), len(want))
	}
	for _, key := range []model.ServiceKey{tcpService(vip, "rr").Key, service(model.UDP, vip, "rr").Key} {
		for i := range 2 {
			a, b := master.status(key).Servers[i], backup.status(key).Servers[i]
			if a.Active != b.Active || a.Inactive != b.Inactive || a.Persistent != b.Persistent {
				t.Errorf("%s %s: %d/%d/%d, want %d/%d/%d", key, a.Addr, b.Active, b.Inactive, b.Persistent, a.Active, a.Inactive, a.Persistent)
			}
		}
	}
	backup.wantClean("after synchronization")
}

func containsLine(text, line string) bool {
	return slices.Contains(strings.Split(text, "\n"), line)
}
