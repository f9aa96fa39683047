// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"slices"
	"testing"
	"time"

	"imbang/internal/daemon/check"
	"imbang/internal/daemon/config"
	"imbang/internal/daemon/core"
	"imbang/internal/daemon/operator"
	"imbang/internal/daemon/pair"
)

// A service counts once all of its checks have decided since the daemon began: what they say
// before is the last daemon's, or the initial state. A server in maintenance does not count.
func TestSees(t *testing.T) {
	c, err := config.Parse("x.yaml", []byte(`
checks: {a: {tcp: {}, fall: 3, rise: 2}}
services:
  - {name: web, virtual: "10.20.0.1:80", checks: [a], servers: [{address: 172.16.0.2}, {address: 172.16.0.3}]}
  - {name: unchecked, virtual: "10.20.0.1:81", servers: [{address: 172.16.0.2}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	d := &Daemon{started: now, core: core.New(c, operator.Book{}, core.Memory{}, now)}
	key := c.Services[0].ID()
	id := func(i int) operator.ServerID {
		return operator.ServerID{Service: key, Server: c.Services[0].Servers[i].AddrPort()}
	}
	result := func(i int, ok bool) {
		now = now.Add(time.Second)
		d.core.Result(core.CheckID{ServerID: id(i), Check: "a"}, check.Result{OK: ok}, now)
	}
	want := func(what string, up, total int) {
		t.Helper()
		view := d.sees()
		seen, there := view.Services[key.String()]
		if there != (total > 0) || seen != (pair.Seen{Up: up, Total: total}) || len(view.Services) > 2 {
			t.Errorf("%s: %+v, want %d of %d", what, view.Services, up, total)
		}
		if unchecked := view.Services[c.Services[1].ID().String()]; unchecked != (pair.Seen{Up: 1, Total: 1}) {
			t.Errorf("%s: without checks: %+v, want 1 of 1", what, unchecked)
		}
		if slices.Contains(view.Undecided, key.String()) != (total == 0) || len(view.Undecided) > 1 {
			t.Errorf("%s: undecided: %v", what, view.Undecided)
		}
	}
	want("before results", 0, 0)
	result(0, true)
	want("one has one", 0, 0)
	result(1, false)
	want("the other one has failed, and is still up", 0, 0)
	result(1, false)
	result(1, false)
	want("it is down", 1, 2)
	result(0, false)
	want("a single failure later", 1, 2)
	result(1, true)
	result(1, true)
	want("both are up", 2, 2)
	order := operator.Order{By: "root", At: now}
	d.core.Order(id(0), operator.State{Maintenance: &order}, "root", "maintenance", now)
	want("maintenance", 1, 1)
}
