// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"imbang/internal/director"
	"imbang/internal/host"
	"imbang/internal/model"
)

// openDirector opens the director of a namespace, and loads it if there is none.
func openDirector(t *testing.T, ns *host.Namespace) (d *director.Director) {
	t.Helper()
	err := ns.Do(func() (err error) {
		d, err = director.OpenOrLoad(director.Sizes{Services: 64, Servers: 256, Connections: 4096})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// tableOf lists the connection table.
func tableOf(t *testing.T, d *director.Director) string {
	t.Helper()
	var lines []string
	for c, err := range d.Connections(director.ConnectionFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s %s %s %s %s %s %s%s", c.Protocol, c.State, c.Client, c.Virtual, c.Server, c.Forward, c.Expires.Round(time.Minute), c.EngineData))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// What a master is told is in the connection table of a director that is its backup, also
// what waits for its server, which is bound when that is added.
func TestDirectorIsABackup(t *testing.T) {
	a, b := twoHosts(t)
	for _, ns := range []*host.Namespace{a, b} {
		t.Cleanup(func() {
			if err := ns.Do(func() error { return director.Detach(true) }); err != nil {
				t.Error(err)
			}
		})
	}
	there, look := openDirector(t, b), openDirector(t, b)
	add := func(k model.ServiceKey, engine string, s model.Server) {
		t.Helper()
		service := model.Service{Key: k, Scheduler: "rr", Flags: model.Persistent, Timeout: time.Minute, Netmask: model.FullMask(k.Family), Engine: engine}
		if err := look.AddService(service); err != nil {
			t.Fatal(err)
		}
		s.Weight = 1
		if err := look.AddServer(k, s); err != nil {
			t.Fatal(err)
		}
	}
	c, six, call := connection(1001), connection6(1002), callTemplate("call@host")
	add(model.AddrKey(model.TCP, c.Virtual), "", model.Server{Addr: c.Server.Addr(), Port: c.Server.Port()})
	add(model.AddrKey(model.UDP, call.Virtual), "sip", model.Server{Addr: call.Server.Addr(), Port: call.Server.Port()})
	add(model.MarkKey(5, model.IPv4), "", model.Server{Addr: at2.Addr(), Forward: model.Route})

	closing := connection(1003)
	closing.State, closing.Flags, closing.Timeout = "TIME_WAIT", model.ConnInactive, 2*time.Minute
	marked := connection(1004)
	marked.Service, marked.Virtual, marked.Server, marked.Forward = model.MarkKey(5, model.IPv4), at("10.9.0.7:443"), at("10.2.0.3:443"), model.Route
	network := &model.Connection{Template: true, State: "ASSURED", Client: at("10.1.0.0:0"), Virtual: at("0.0.0.5:0"), Server: at("10.2.0.3:0"), Service: marked.Service, Forward: model.Route, Timeout: 3 * time.Minute}

	changed := make(chan struct{}, 1)
	backup := run(t, b, Config{Role: RoleBackup, Interface: "eth0"}, Options{Table: there, Changed: changed})
	source := newFakeSource()
	master := run(t, a, Config{Role: RoleMaster, Interface: "eth0"}, Options{Table: openDirector(t, a), Tell: func() (Source, error) { return source, nil }})
	source.batches <- told(c, six, call, closing, marked, network)
	source.batches <- nil
	master.end(t)

	want := []string{
		"FWM ASSURED 10.1.0.0:0 0.0.0.5:0 10.2.0.3:0 Route 3m0s",
		"TCP ESTABLISHED 10.1.0.1:1001 10.9.0.1:80 10.2.0.2:8080 Masq 15m0s",
		"TCP ESTABLISHED 10.1.0.1:1004 10.9.0.7:443 10.2.0.3:443 Route 15m0s",
		"TCP ESTABLISHED [2001:db8::1]:1002 [2001:db8::100]:80 [2001:db8::2]:80 Masq 15m0s",
		"TCP TIME_WAIT 10.1.0.1:1003 10.9.0.1:80 10.2.0.2:8080 Masq 2m0s",
		"UDP NONE 10.1.0.0:0 10.9.0.4:5060 10.2.0.2:5060 Masq 1m0scall@host",
	}
	eventually(t, "the entries are there", func() bool { return backup.counts.Unbound.Load() == 1 })
	if got := tableOf(t, look); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	add(model.AddrKey(model.TCP, six.Virtual), "", model.Server{Addr: six.Server.Addr(), Port: six.Server.Port()})
	changed <- struct{}{}
	eventually(t, "the entry of the late server is there", func() bool { return backup.counts.Bound.Load() == 1 })
	if got := tableOf(t, look); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	backup.counts.wants(t, nil)
	backup.end(t)
}

// A master's source is a director's teller.
func TestDirectorIsAMaster(t *testing.T) {
	a, _ := twoHosts(t)
	d := openDirector(t, a)
	t.Cleanup(func() {
		if err := a.Do(func() error { return director.Detach(true) }); err != nil {
			t.Error(err)
		}
	})
	if err := d.Set(director.Setting{Name: "sync_ports", Value: 4}); err != nil {
		t.Fatal(err)
	}
	master := run(t, a, Config{Role: RoleMaster, Interface: "eth0"}, Options{
		Table: d,
		Tell:  func() (Source, error) { return director.Tell(director.TellRule{}) },
	})
	master.end(t)
	if err := d.Set(director.Setting{Name: "sync_ports", Value: 1}); err != nil {
		t.Errorf("the director afterwards: %v", err)
	}
}
