// SPDX-License-Identifier: Apache-2.0

package core

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/check"
	"imbang/internal/daemon/events"
	"imbang/internal/daemon/operator"
	"imbang/internal/daemon/plan"
	"imbang/internal/model"
)

// again is the core of the next daemon with the same director, by what the table says.
func (w *world) again() *world {
	w.Helper()
	memory, down := w.Memory(), map[operator.ServerID]bool{}
	for _, s := range w.Wanted().Services {
		for _, one := range s.Servers {
			down[operator.ServerID{Service: operator.ServiceID{Key: s.Key}, Server: one.AddrPort()}] = one.Health == model.Down
		}
	}
	memory.Down(w.Config, down, w.now)
	return &world{w.T, New(w.Config, w.Book, memory, w.now), w.now}
}

const agents = `
checks:
  web: {agent: {}, port: 9, rise: 2, fall: 3}
services:
  - name: web
    virtual: 10.20.0.1:80
    checks: [web]
    servers:
      - {name: a, address: 172.16.0.1, weight: 100}
      - {name: b, address: 172.16.0.2, weight: 100}
`

// A server that serves, as another checker has found it up, is not down with the next daemon.
func TestFoundUp(t *testing.T) {
	w := newWorld(t, agents)
	for _, server := range []string{"a", "b"} {
		for range 3 {
			w.result(server, "web", bad)
		}
	}
	w.expect("down", w.table(), "100/down 100/down")
	memory, up := w.Memory(), map[operator.ServerID]bool{}
	for _, s := range w.Wanted().Services {
		up[operator.ServerID{Service: operator.ServiceID{Key: s.Key}, Server: s.Servers[0].AddrPort()}] = true
	}
	memory.Up(w.Config, up, w.now)
	next := &world{w.T, New(w.Config, w.Book, memory, w.now), w.now}
	w.expect("one was found up", next.table(), "100/up 100/down")
	next.result("a", "web", bad)
	w.expect("one failure", next.table(), "100/up 100/down")
}

// What an agent said last holds: while it does not answer, over reloads and restarts.
func TestAgentsWordHolds(t *testing.T) {
	w := newWorld(t, agents)
	w.result("a", "web", check.Result{OK: true, Withheld: 90 * model.Percent, HasShare: true})
	w.result("b", "web", check.Result{OK: true, Command: check.Drain})
	want := "100/10% 100/up/drain"
	w.expect("said", w.table(), want)
	w.result("a", "web", bad)
	w.expect("one timeout", w.table(), want)
	w.result("a", "web", good)
	w.expect("up alone", w.table(), want)
	w.Core, _ = w.Reload(load(t, agents), w.now)
	w.expect("after a reload", w.table(), want)
	w.expect("after a restart", w.again().table(), want)
	w.result("a", "web", check.Result{OK: true, Withheld: model.Down, HasShare: true})
	w.expect("nothing of it", w.again().table(), "100/down 100/up/drain")
	if v := w.again().View()[0].Servers[0]; !v.Up {
		t.Error("a server without a share counts as failed after a restart")
	}
}

// Servers without a share carry nothing, and those with a part carry that.
func TestQuorumOfShares(t *testing.T) {
	w := newWorld(t, strings.Replace(agents, "    servers:", "    quorum: 20\n    sorry: {name: s, address: 172.16.0.9}\n    servers:", 1))
	w.result("a", "web", check.Result{OK: true, Withheld: model.Down, HasShare: true})
	w.result("b", "web", check.Result{OK: true, Withheld: 80 * model.Percent, HasShare: true})
	w.expect("20 of 200", w.table(), "100/down 100/20% absent")
	w.result("b", "web", check.Result{OK: true, Withheld: 81 * model.Percent, HasShare: true})
	w.expect("19 of 200", w.table(), "100/down 100/down 1/up")
}

const sorry = `
checks:
  web: {http: {}, rise: 2, fall: 1}
services:
  - name: web
    virtual: 10.20.0.1:80
    checks: [web]
    quorum: 2
    hysteresis: 1
    quorum_up: [/bin/up]
    quorum_down: [/bin/down]
    sorry: {name: s, address: 172.16.0.9}
    servers:
      - {name: a, address: 172.16.0.1}
      - {name: b, address: 172.16.0.2}
      - {name: c, address: 172.16.0.3}
`

// A restart finds what there was: servers that are down in the table for the sorry server
// alone are up, and a quorum that hysteresis holds down stays down.
func TestRestartKeepsQuorum(t *testing.T) {
	w := newWorld(t, sorry)
	for _, s := range []string{"a", "b", "c"} {
		w.result(s, "web", bad)
	}
	for range 2 {
		w.result("a", "web", good)
		w.result("b", "web", good)
	}
	w.expect("2 of 2 with hysteresis", w.table(), "1/down 1/down 1/down 1/up")
	again := w.again()
	w.expect("after a restart", again.table(), "1/down 1/down 1/down 1/up")
	for i, up := range []bool{true, true, false} {
		if s := again.View()[0].Servers[i]; s.Up != up {
			t.Errorf("server %s: up %v", s.Name, s.Up)
		}
	}
}

// The initial state is for checks that were never made: a restart changes nothing.
func TestRestartIgnoresInitial(t *testing.T) {
	for initial, r := range map[string]check.Result{"down": good, "up": bad} {
		w := newWorld(t, strings.Replace(agents, "rise: 2", "initial: "+initial+", rise: 2", 1))
		for range 3 {
			w.result("a", "web", r)
		}
		w.expect(initial, w.again().table(), w.table())
	}
}

// A reload that takes the quorum away, or brings it, says so and runs the hook.
func TestReloadTellsOfQuorum(t *testing.T) {
	w := newWorld(t, strings.Replace(sorry, "hysteresis: 1", "hysteresis: 0", 1))
	w.result("a", "web", bad)
	more := strings.NewReplacer("hysteresis: 1", "hysteresis: 0", "quorum: 2", "quorum: 3").Replace(sorry)
	w.now = w.now.Add(time.Minute)
	var out Outcome
	w.Core, out = w.Reload(load(t, more), w.now)
	w.expect("3 of 2", w.tell(out), "quorum-down : the service has less than its quorum of 3, clients get the sorry server s; run /bin/down")
	if v := w.View()[0]; v.Up || v.Since != w.now {
		t.Errorf("%+v", v)
	}
	w.Core, out = w.Reload(load(t, strings.Replace(more, "quorum: 3", "quorum: 2", 1)), w.now)
	w.expect("2 of 2", w.tell(out), "quorum-up : the service has its quorum of 2; run /bin/up")
}

// A server that is down stays so when its check gets another name, until that succeeds; it
// is up when the check that failed is not made any more.
func TestReloadKeepsDown(t *testing.T) {
	w := newWorld(t, agents)
	for range 3 {
		w.result("a", "web", bad)
	}
	renamed := strings.NewReplacer("  web: {agent", "  other: {agent", "checks: [web]", "checks: [other]").Replace(agents)
	var out Outcome
	w.Core, out = w.Reload(load(t, renamed), w.now)
	w.expect("renamed", w.table()+w.tell(out), "100/down 100/up")
	w.result("a", "other", good)
	w.result("a", "other", good)
	w.expect("it succeeds", w.table(), "100/up 100/up")
	for range 3 {
		w.result("a", "other", bad)
	}
	w.Core, out = w.Reload(load(t, strings.Replace(renamed, "    checks: [other]\n", "", 1)), w.now)
	w.expect("without checks", w.table()+" "+w.tell(out), "100/up 100/up server-up a: by its checks of the new configuration")
}

// The last server that clients can be left with is one that is not out of service.
func TestAllDownInMaintenance(t *testing.T) {
	w := newWorld(t, checked+"    all_down: last\n"+three)
	for _, s := range []string{"a", "c", "b"} {
		w.result(s, "web", bad)
		w.result(s, "web", bad)
	}
	w.Order(w.id("b"), operator.State{Maintenance: &operator.Order{}}, "root", "maintenance", w.now)
	w.expect("b is in maintenance", w.table(), "1/down 2/up/drain 3/up")
}

// A server of the service can be its sorry server, too. The service has it once: while the quorum is
// lost, with the weight of the sorry server and without slow start.
func TestSorryIsServer(t *testing.T) {
	for _, failure := range []string{"quiesce", "remove"} {
		w := newWorld(t, strings.NewReplacer("quorum: 2", "quorum: 1", "hysteresis: 1", "slow_start: 10 s\n    on_failure: "+failure,
			"{name: s, address: 172.16.0.9}", "{name: s, address: 172.16.0.2, weight: 7}").Replace(sorry))
		down := map[string]string{"quiesce": "1/down", "remove": "absent"}[failure]
		expect := func(what, a, b, c string, slowStart bool) {
			t.Helper()
			w.expect(failure+", "+what, w.table(), strings.Join([]string{a, b, c}, " "))
			s, _ := w.WantedService(model.AddrKey(model.TCP, netip.MustParseAddrPort("10.20.0.1:80")))
			if one := s.Servers[1]; (one.SlowStart > 0) != slowStart {
				t.Errorf("%s, %s: slow start of %s", failure, what, one.SlowStart)
			}
		}
		rise := func(name string) {
			w.result(name, "web", good)
			w.result(name, "web", good)
		}
		expect("at first", "1/up", "1/up", "1/up", true)
		w.result("a", "web", bad)
		w.result("b", "web", bad)
		expect("two are down", down, down, "1/up", true)
		was := w.Wanted().Services[0]
		w.result("c", "web", bad)
		expect("all are down", map[string]string{"quiesce": "1/down", "remove": "absent"}[failure], "7/up", down, false)
		if c := plan.Follow(was, w.Wanted().Services[0]); !slices.ContainsFunc(c, func(c plan.Change) bool {
			return c.Server.Addr.String() == "172.16.0.2" && c.Server.Weight == 7 && (c.Kind == plan.AddServer || c.Kind == plan.SetWeight)
		}) {
			t.Errorf("%s: %v", failure, c)
		}
		w.expect("a restart", w.again().table(), w.table())
		w.Core, _ = w.Reload(w.Config, w.now)
		expect("after a reload", down, "7/up", down, false)
		rise("b")
		expect("the twin is up", down, "1/up", down, true)
		w.result("b", "web", bad)
		expect("and down", down, "7/up", down, false)
		rise("a")
		expect("another one is up", "1/up", down, down, true)
		// A server that an operator drains gets no new clients as the sorry server either.
		w.Order(w.id("b"), operator.State{Drain: &operator.Drain{}}, "root", "drain", w.now)
		w.result("a", "web", bad)
		expect("drained", down, "7/up/drain", down, false)
		if n := len(w.Configured().Services[0].Servers); n != 3 {
			t.Errorf("%d servers are configured", n)
		}
	}
}

// The sorry server is there before the last server goes.
func TestSorryComesFirst(t *testing.T) {
	w := newWorld(t, sorry)
	w.result("a", "web", bad)
	was := w.Wanted().Services[0]
	w.result("b", "web", bad)
	w.result("c", "web", bad)
	changes := plan.Follow(was, w.Wanted().Services[0])
	if len(changes) < 3 || changes[0].Kind != plan.AddServer {
		t.Errorf("%v", changes)
	}
}

// Of a service that is new and has its quorum, the command because of that is due once: not after a
// reload or a restart that finds it as it was, but with another director.
func TestFirstQuorum(t *testing.T) {
	web := operator.ServiceID{Key: model.AddrKey(model.TCP, netip.MustParseAddrPort("10.20.0.1:80"))}
	expect := func(what string, got []operator.ServiceID, want ...operator.ServiceID) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	w := newWorld(t, sorry)
	expect("at first", w.Begun.New, web)
	if h, ok := w.QuorumUp(web, w.now); !ok || w.tell(Outcome{Events: []events.Event{h.Event}, Hooks: []Hook{h}}) != "quorum-up : the service has its quorum of 2; run /bin/up" {
		t.Errorf("%v, %v", h, ok)
	}
	expect("after a restart", w.again().Begun.New)
	expect("with another director", Restart(w.Config, w.Book, w.Memory(), w.now).Begun.New, web)
	more := sorry + "  - {name: more, virtual: \"10.20.0.1:81\", quorum_up: [/bin/up], servers: [{address: 172.16.0.1}]}\n" +
		"  - {name: plain, virtual: \"10.20.0.1:82\", servers: [{address: 172.16.0.1}]}\n" +
		"  - {name: down, virtual: \"10.20.0.1:83\", quorum_up: [/bin/up], servers: [{address: 172.16.0.1, weight: 0}]}\n"
	var out Outcome
	w.Core, out = w.Reload(load(t, more), w.now)
	expect("a service more", out.New, operator.ServiceID{Key: model.AddrKey(model.TCP, netip.MustParseAddrPort("10.20.0.1:81"))})
	w.Core, out = w.Reload(load(t, more), w.now)
	expect("the same file again", out.New)
	for _, s := range []string{"a", "b", "c"} {
		w.result(s, "web", bad)
	}
	if _, ok := w.QuorumUp(web, w.now); ok {
		t.Error("quorum_up of a service without its quorum")
	}
}

// A daemon whose configuration differs from that of the last one says what that changes of quorums, and
// hysteresis keeps what is up.
func TestRestartTellsOfQuorum(t *testing.T) {
	w := newWorld(t, sorry)
	w.result("a", "web", bad)
	w.result("b", "web", bad)
	again := w.again()
	w.expect("1 of 2 with hysteresis", again.table()+w.tell(again.Begun), "1/down 1/down 1/up absent")
	next := New(load(t, strings.Replace(sorry, "hysteresis: 1", "hysteresis: 0", 1)), w.Book, w.Memory(), w.now)
	w.expect("1 of 2", w.tell(next.Begun), "quorum-down : the service has less than its quorum of 2, clients get the sorry server s; run /bin/down")
	w.result("c", "web", bad)
	next = New(load(t, strings.Replace(sorry, "    checks: [web]\n", "", 1)), w.Book, w.Memory(), w.now)
	w.expect("without checks", w.tell(next.Begun), "quorum-up : the service has its quorum of 2; run /bin/up")
	if len(next.Begun.New) > 0 {
		t.Error("it is new")
	}
}
