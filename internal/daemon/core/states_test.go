// SPDX-License-Identifier: Apache-2.0

package core

import (
	"maps"
	"testing"
	"time"

	"imbang/internal/daemon/check"
	"imbang/internal/daemon/config"
	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/operator"
	"imbang/internal/model"
)

const layer7 = `
checks: {web: {http: {}, rise: 1, fall: 1}}
listeners: [{name: a, bind: ["127.0.0.1:80"], backend: web}]
backends:
  - name: web
    checks: [web]
    drain_deadline: 1 min
    servers: [{name: s1, address: "127.0.1.1:80"}, {name: s2, address: "127.0.1.2:80", weight: 10}]
`

// What is known of the servers of layer 7 is what HAProxy is to do.
func TestStates(t *testing.T) {
	c, err := config.Parse("x.yaml", []byte(layer7))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1000, 0)
	core := New(c, operator.Book{}, Memory{Checks: map[CheckID]check.State{}}, now)
	id := func(name string) operator.ServerID {
		ids, err := core.Find(name, "web")
		if err != nil || len(ids) != 1 {
			t.Fatalf("%v, %v", ids, err)
		}
		return ids[0]
	}
	expect := func(what string, s1, s2 l7.State) {
		t.Helper()
		want := l7.States{{Backend: "web", Server: "s1"}: s1, {Backend: "web", Server: "s2"}: s2}
		if got := core.States(now); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	up := l7.State{Weight: 1}
	expect("at first", up, l7.State{Weight: 10})
	out := core.Result(CheckID{id("s1"), "web"}, check.Result{}, now)
	if len(out.Changed) != 1 || out.Changed[0] != (operator.ServiceID{Backend: "web"}) {
		t.Errorf("changed: %v", out.Changed)
	}
	expect("s1 is down", l7.State{Health: l7.Down, Weight: 1}, l7.State{Weight: 10})
	core.Result(CheckID{id("s1"), "web"}, check.Result{OK: true}, now)
	core.Result(CheckID{id("s2"), "web"}, check.Result{OK: true, HasShare: true, Withheld: 50 * model.Percent}, now)
	expect("an agent leaves half", up, l7.State{Weight: 5})
	core.Result(CheckID{id("s2"), "web"}, check.Result{OK: true, HasShare: true, Withheld: model.Up}, now)
	core.Order(id("s2"), operator.State{Weight: &operator.Weight{Weight: 1000}}, "root", "", now)
	expect("a weight", up, l7.State{Weight: 256})
	core.Order(id("s2"), operator.State{Maintenance: &operator.Order{}}, "root", "", now)
	expect("maintenance", up, l7.State{Health: l7.Drain, Weight: 10})
	core.Order(id("s2"), operator.State{Drain: &operator.Drain{Deadline: now.Add(core.DrainDeadline(id("s2")))}}, "root", "", now)
	expect("drain", up, l7.State{Health: l7.Drain, Weight: 10})
	now = now.Add(time.Minute)
	expect("its deadline", up, l7.State{Health: l7.Down, Weight: 10})
	core.Order(id("s2"), operator.State{}, "root", "", now)
	expect("enabled", up, l7.State{Weight: 10})
	// The director gets nothing of it.
	if table := core.Wanted(); len(table.Services) > 0 {
		t.Errorf("%+v", table)
	}
	if next, out := core.Reload(c, now); len(out.Events) > 0 || !maps.Equal(next.States(now), core.States(now)) {
		t.Errorf("after a reload: %v, %v", out.Events, next.States(now))
	}
}
