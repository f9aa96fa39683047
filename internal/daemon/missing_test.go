// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"testing"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/check"
	"imbang/internal/daemon/pair"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

const twoServices = `
checks:
  web: {tcp: {}, rise: 1, fall: 1}
services:
  - {name: web, virtual: "10.20.0.1:80", checks: [web], servers: [{name: a, address: 172.16.0.1}, {name: b, address: 172.16.0.2}]}
  - {name: plain, virtual: "10.20.0.1:81", servers: [{address: 172.16.0.1}, {address: 172.16.0.2}]}
  - {name: gone, virtual: "10.20.0.1:82", checks: [web], on_failure: remove, servers: [{name: c, address: 172.16.0.3}]}
`

// A service that is missing in the table, or has no server there, has none up for the peer.
func TestMissingServices(t *testing.T) {
	d := newDaemon(t, twoServices)
	d.started = time.Now().Add(-time.Minute)
	services := d.core.Config.Services
	for i, id := range checkIDs(d) {
		d.core.Result(id, check.Result{OK: i < 2}, time.Now()) // c of the last service is down, and removed
	}
	full := []model.ServiceStatus{
		{Service: services[0].Service, Servers: []model.ServerStatus{{Server: services[0].Servers[0].Server}}},
		{Service: services[1].Service, Servers: []model.ServerStatus{{Server: services[1].Servers[0].Server}}},
		{Service: services[2].Service},
	}
	expect := func(what string, table []model.ServiceStatus, web, plain int, alarm string) {
		t.Helper()
		d.setMissing(table)
		view := d.sees()
		want := map[string]pair.Seen{
			services[0].Key.String(): {Up: web, Total: 2}, services[1].Key.String(): {Up: plain, Total: 2}, services[2].Key.String(): {Total: 1},
		}
		for key, seen := range want {
			if view.Services[key] != seen {
				t.Errorf("%s: %s: %+v, want %+v", what, key, view.Services[key], seen)
			}
		}
		if got := d.alarms[alarmServiceMissing].Text; got != alarm {
			t.Errorf("%s: %q, want %q", what, got, alarm)
		}
	}
	const refused = "clients are refused, for the director's table lacks the service or all of its servers: "
	expect("at first", full, 2, 2, "")
	expect("one deleted", full[1:], 0, 2, refused+"web (10.20.0.1:80/tcp). imbang reload adds them")
	expect("all", nil, 0, 0, refused+"web (10.20.0.1:80/tcp), plain (10.20.0.1:81/tcp), gone (10.20.0.1:82/tcp). imbang reload adds them")
	empty := []model.ServiceStatus{{Service: services[0].Service}, full[1], full[2]}
	expect("without servers", empty, 0, 2, refused+"web (10.20.0.1:80/tcp). imbang reload adds them")
	expect("back", full, 2, 2, "")
	// Checks that have not decided do not matter then.
	d.started, d.pair.settled = time.Now(), nil
	if view := d.sees(); len(view.Undecided) != 2 {
		t.Errorf("%+v", view)
	}
	d.setMissing(nil)
	if view := d.sees(); len(view.Undecided) != 0 || view.Services[services[0].Key.String()] != (pair.Seen{Total: 2}) {
		t.Errorf("%+v", view)
	}
}

// What is missing is so since it was deleted, not since it came up.
func TestMissingSince(t *testing.T) {
	d := newDaemon(t, twoServices)
	for _, id := range checkIDs(d) {
		d.core.Result(id, check.Result{OK: true}, time.Now().Add(-time.Hour))
	}
	web := d.core.Config.Services[0]
	entry := func(n int) (s model.ServiceStatus) {
		s.Service = web.Service
		for _, one := range web.Servers[:n] {
			s.Servers = append(s.Servers, model.ServerStatus{Server: one.Server})
		}
		return s
	}
	base := time.Now()
	at := func(after time.Duration, table ...model.ServiceStatus) api.Service {
		d.noteMissing(table, base.Add(after))
		v := d.core.View()[0]
		out := service(v, nil)
		if len(table) > 0 {
			out = service(v, &table[0])
		}
		d.dateMissing(&out, v)
		return out
	}
	up := at(0, entry(2)).Since
	one := at(time.Minute, entry(1))
	if b := one.Servers[1]; b.State != stateMissing || !b.Since.Equal(base.Add(time.Minute)) || !one.Since.Equal(up) {
		t.Errorf("b was deleted: %+v", one)
	}
	if b := at(2*time.Minute, entry(1)).Servers[1]; !b.Since.Equal(base.Add(time.Minute)) {
		t.Errorf("later: %+v", b)
	}
	none := at(3 * time.Minute)
	if !none.Missing || !none.Since.Equal(base.Add(3*time.Minute)) || !none.Servers[0].Since.Equal(none.Since) || !none.Servers[1].Since.Equal(base.Add(time.Minute)) {
		t.Errorf("the service was deleted: %+v", none)
	}
	if back := at(4*time.Minute, entry(2)); !back.Since.Equal(up) || back.Servers[1].State == stateMissing {
		t.Errorf("back: %+v", back)
	}
}

// Without a director no service is in a table, whatever was there before.
func TestMissingDirector(t *testing.T) {
	d := newDaemon(t, twoServices)
	d.started = time.Now().Add(-time.Minute)
	for _, id := range checkIDs(d) {
		d.core.Result(id, check.Result{OK: true}, time.Now())
	}
	ns := testenv.Namespace(t, "none")
	if err := ns.Do(func() error { d.look(); return nil }); err != nil {
		t.Fatal(err)
	}
	if d.alarms[alarmDirector].Text == "" || d.alarms[alarmServiceMissing].Text != "" {
		t.Errorf("%+v", d.alarms)
	}
	for key, seen := range d.sees().Services {
		if seen.Up != 0 || seen.Total == 0 {
			t.Errorf("%s: %+v", key, seen)
		}
	}
}
