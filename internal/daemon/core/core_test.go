// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/check"
	"imbang/internal/daemon/config"
	"imbang/internal/daemon/migrate"
	"imbang/internal/daemon/operator"
	"imbang/internal/model"
)

// world is a core with a clock.
type world struct {
	*testing.T
	*Core
	now time.Time
}

func load(t *testing.T, text string) *config.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "imbang.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newWorld(t *testing.T, text string) *world {
	t.Helper()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return &world{t, New(load(t, text), operator.Book{}, Memory{}, now), now}
}

const checked = `
checks:
  web: {http: {}, rise: 2, fall: 2}
  agent: {tcp: {}, rise: 1, fall: 1}
services:
  - name: web
    virtual: 10.20.0.1:80
    checks: [web]
`

const three = `
    servers:
      - {name: a, address: 172.16.0.1}
      - {name: b, address: 172.16.0.2, weight: 2}
      - {name: c, address: 172.16.0.3, weight: 3, checks: [web, agent]}
`

func (w *world) id(server string) operator.ServerID {
	w.Helper()
	ids, err := w.Find(server, "")
	if err != nil || len(ids) != 1 {
		w.Fatalf("%s: %v, %v", server, ids, err)
	}
	return ids[0]
}

// result is a result of a server's check, a second later: what happened.
func (w *world) result(server, name string, r check.Result) string {
	w.Helper()
	w.now = w.now.Add(time.Second)
	return w.tell(w.Result(CheckID{w.id(server), name}, r, w.now))
}

func (w *world) tell(o Outcome) string {
	var lines []string
	for _, e := range o.Events {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s: %s", e.Kind, e.Server, e.Text)))
	}
	for _, h := range o.Hooks {
		lines = append(lines, "run "+strings.Join(h.Command, " "))
	}
	return strings.Join(lines, "; ")
}

// table is the wanted table in short: weight and health of each server.
func (w *world) table() string {
	s, _ := w.WantedService(model.AddrKey(model.TCP, netip.MustParseAddrPort("10.20.0.1:80")))
	var words []string
	for _, one := range s.Servers {
		word := fmt.Sprintf("%d/%s", one.Weight, one.Health)
		if one.Drain {
			word += "/drain"
		}
		if one.Absent {
			word = "absent"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func (w *world) expect(what, got, want string) {
	w.Helper()
	if got != want {
		w.Errorf("%s: %q, want %q", what, got, want)
	}
}

var (
	good = check.Result{OK: true, Detail: "fine"}
	bad  = check.Result{Detail: "timeout"}
)

func TestFallAndRise(t *testing.T) {
	w := newWorld(t, checked+`    notify_up: [/bin/up]
    notify_down: [/bin/down, -x]
`+three)
	w.expect("at first", w.table(), "1/up 2/up 3/up")
	w.expect("one failure", w.result("a", "web", bad), "")
	w.expect("two", w.result("a", "web", bad), "server-down a: check web: timeout; run /bin/down -x")
	w.expect("then", w.table(), "1/down 2/up 3/up")
	w.expect("three", w.result("a", "web", bad), "")
	for range 3 {
		w.expect("inconclusive", w.result("b", "web", check.Result{Inconclusive: true, Detail: "too many open files"}), "")
	}
	w.expect("then", w.table(), "1/down 2/up 3/up")
	w.expect("one success", w.result("a", "web", good), "")
	w.expect("a failure between", w.result("a", "web", bad), "")
	w.expect("one success again", w.result("a", "web", good), "")
	w.expect("two", w.result("a", "web", good), "server-up a: check web: fine; run /bin/up")
	w.expect("then", w.table(), "1/up 2/up 3/up")
	// Of several checks one is enough to be down, all are needed to be up.
	w.expect("the agent fails", w.result("c", "agent", bad), "server-down c: check agent: timeout; run /bin/down -x")
	w.result("c", "web", bad)
	w.expect("the other as well", w.result("c", "web", bad), "")
	w.expect("the agent is well", w.result("c", "agent", good), "")
	w.result("c", "web", good)
	w.expect("both are", w.result("c", "web", good), "server-up c: check web: fine; run /bin/up")
	w.expect("of no server", w.tell(w.Result(CheckID{operator.ServerID{}, "web"}, bad, w.now)), "")
}

func TestSharesAndAgents(t *testing.T) {
	w := newWorld(t, checked+three)
	half := check.Result{OK: true, Withheld: 50 * model.Percent, HasShare: true}
	w.result("c", "agent", half)
	w.expect("half", w.table(), "1/up 2/up 3/50%")
	w.expect("inconclusive", w.result("c", "agent", check.Result{Inconclusive: true, Detail: "too many open files"}), "")
	w.expect("inconclusive", w.table(), "1/up 2/up 3/50%")
	w.expect("drain", w.result("c", "agent", check.Result{OK: true, Command: check.Drain}), "agent c: agent asks for drain")
	w.expect("drain", w.table(), "1/up 2/up 3/50%/drain")
	w.expect("inconclusive", w.result("c", "agent", check.Result{Inconclusive: true, Command: check.Ready}), "")
	w.expect("inconclusive", w.table(), "1/up 2/up 3/50%/drain")
	w.expect("again", w.result("c", "agent", check.Result{OK: true, Command: check.Drain}), "")
	w.expect("ready", w.result("c", "agent", check.Result{OK: true, Command: check.Ready}), "agent c: agent asks for ready")
	w.expect("ready, the share holds", w.table(), "1/up 2/up 3/50%")
}

// Weights that scripts with dynamic set are those of keepalived: of 253, the exit status less 2. The
// least of them keeps the quorum.
func TestDynamicWeights(t *testing.T) {
	w := newWorld(t, checked+"    servers: [{name: a, address: 172.16.0.1, weight: 253}]\n")
	dir := t.TempDir()
	for _, c := range []struct {
		status int
		want   int32
		quorum bool
	}{{255, 253, true}, {128, 126, true}, {4, 2, true}, {3, 1, true}, {2, 0, false}, {3, 1, true}, {200, 198, true}} {
		path := filepath.Join(dir, fmt.Sprintf("s%d-%d", c.status, c.want))
		if err := os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\nexit %d\n", c.status), 0o755); err != nil {
			t.Fatal(err)
		}
		script, err := (&check.Script{Command: []string{path}, Dynamic: true}).Checker()
		if err != nil {
			t.Fatal(err)
		}
		w.result("a", "web", script.Check(t.Context(), check.Target{}))
		is, _ := w.WantedService(model.AddrKey(model.TCP, netip.MustParseAddrPort("10.20.0.1:80")))
		if got := model.Effective(is.Servers[0].Weight, is.Servers[0].Health, false); got != c.want || w.View()[0].Up != c.quorum {
			t.Errorf("exit status %d: weight %d, quorum %v, want %d, %v", c.status, got, w.View()[0].Up, c.want, c.quorum)
		}
	}
}

// The quorum of an imported misc_dynamic counts the weights that keepalived has.
func TestImportedDynamicWeights(t *testing.T) {
	r, err := migrate.Keepalived(t.Context(), "keepalived.conf", []byte(`
virtual_server 10.20.0.1 80 {
    protocol TCP
    quorum 3
    sorry_server 172.16.0.9 80
    real_server 172.16.0.1 80 {
        MISC_CHECK {
            misc_path /bin/load
            misc_dynamic
        }
    }
    real_server 172.16.0.2 80 {
        weight 3
        MISC_CHECK {
            misc_path /bin/load
            misc_dynamic
        }
    }
}`), migrate.Source{})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, string(r.YAML()))
	path := filepath.Join(t.TempDir(), "load")
	for _, c := range []struct {
		status int
		table  string // effective weights
		quorum bool
	}{{102, "100 100", true}, {3, "1 1", false}, {4, "2 2", true}, {0, "2 2", true}} {
		if err := os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\nexit %d\n", c.status), 0o755); err != nil {
			t.Fatal(err)
		}
		script, err := (&check.Script{Command: []string{path}, Dynamic: true}).Checker()
		if err != nil {
			t.Fatal(err)
		}
		result := script.Check(t.Context(), check.Target{})
		w.Each(func(id CheckID, _ *config.Check, _ *config.Service, _ *config.Server) { w.Result(id, result, w.now) })
		var weights []int32
		for _, in := range w.inputs(w.services[0]) {
			weights = append(weights, model.Effective(in.Configured, in.Withheld, false))
		}
		if got := strings.Trim(fmt.Sprint(weights), "[]"); got != c.table || w.View()[0].Up != c.quorum {
			t.Errorf("exit status %d: weights %s, quorum %v, want %s, %v", c.status, got, w.View()[0].Up, c.table, c.quorum)
		}
	}
}

func TestQuorumAndSorry(t *testing.T) {
	w := newWorld(t, checked+`    quorum: 4
    hysteresis: 1
    quorum_up: [/bin/q, up]
    quorum_down: [/bin/q, down]
    sorry: {name: s, address: 172.16.0.9}
`+three)
	w.expect("at first", w.table(), "1/up 2/up 3/up absent")
	for _, s := range []string{"a", "b"} {
		w.result(s, "web", bad)
		w.result(s, "web", bad)
	}
	w.expect("3 of 4 with hysteresis", w.table(), "1/down 2/down 3/up absent")
	w.result("c", "agent", bad)
	w.expect("none", w.table(), "1/down 2/down 3/down 1/up")
	w.expect("3", w.result("c", "agent", good), "server-up c: check agent: fine")
	w.expect("clients get the sorry server", w.table(), "1/down 2/down 3/down 1/up")
	w.result("b", "web", good)
	w.expect("5", w.result("b", "web", good), "server-up b: check web: fine; quorum-up : the service has its quorum of 4; run /bin/q up")
	w.expect("5", w.table(), "1/down 2/up 3/up absent")
}

func TestAllDown(t *testing.T) {
	for policy, want := range map[string]string{"refuse": "1/down 2/down 3/down", "last": "1/down 2/up 3/down", "all": "1/up 2/up 3/up"} {
		w := newWorld(t, checked+"    all_down: "+policy+"\n"+three)
		for _, s := range []string{"a", "c", "b"} {
			w.result(s, "web", bad)
			w.result(s, "web", bad)
		}
		w.expect(policy, w.table(), want)
		w.Core, _ = w.Reload(w.Config, w.now)
		w.expect(policy+", after a reload", w.table(), want)
		w.result("a", "web", good)
		w.result("a", "web", good)
		w.expect(policy, w.table(), "1/up 2/down 3/down")
	}
}

func TestRemove(t *testing.T) {
	w := newWorld(t, checked+"    on_failure: remove\n"+three)
	w.result("b", "web", bad)
	w.result("b", "web", bad)
	w.expect("removed", w.table(), "1/up absent 3/up")
}

func TestOrders(t *testing.T) {
	w := newWorld(t, checked+"    quorum: 2\n"+three)
	order := operator.Order{By: "root", At: w.now}
	w.expect("weight", w.tell(w.Order(w.id("b"), operator.State{Weight: &operator.Weight{Order: order, Weight: 9}}, "root", "weight 9", w.now)), "order b: weight 9")
	w.expect("weight", w.table(), "1/up 9/up 3/up")
	w.expect("drain", w.tell(w.Order(w.id("b"), operator.State{Drain: &operator.Drain{Order: order}}, "root", "drain", w.now)), "order b: drain")
	w.expect("drain", w.table(), "1/up 2/up/drain 3/up")
	// What is in maintenance is not checked, and not known when it is back.
	w.result("c", "agent", bad)
	w.expect("maintenance of the last but one", w.tell(w.Order(w.id("c"), operator.State{Maintenance: &order}, "root", "maintenance", w.now)), "order c: maintenance")
	w.expect("maintenance", w.table(), "1/up 2/up/drain 3/up/drain")
	w.expect("no results", w.result("c", "agent", bad), "")
	n := 0
	w.Each(func(id CheckID, _ *config.Check, _ *config.Service, _ *config.Server) {
		n++
		if id.ServerID == w.id("c") {
			t.Error("a server in maintenance is checked")
		}
	})
	if n != 2 {
		t.Errorf("%d checks", n)
	}
	w.Order(w.id("c"), operator.State{}, "root", "back", w.now)
	w.expect("back", w.table(), "1/up 2/up/drain 3/up")
}

// A reload keeps what is known of what stays, in whatever order.
func TestReload(t *testing.T) {
	w := newWorld(t, checked+three)
	w.result("a", "web", bad)
	w.result("a", "web", bad)
	since := w.now
	w.Core, _ = w.Reload(load(t, checked+`    servers:
      - {name: new, address: 172.16.0.7}
      - {name: renamed, address: 172.16.0.1}
`), w.now.Add(time.Minute))
	w.expect("after", w.table(), "1/up 1/down")
	if v := w.View()[0].Servers[1]; v.Since != since || v.Up {
		t.Errorf("%+v", v)
	}
	// Likewise a daemon with another director, with last-known; without it all begins anew.
	again := Restart(w.Config, w.Book, w.Memory(), w.now)
	if v := again.View()[0].Servers[1]; v.Up || v.Since != since {
		t.Errorf("%+v", v)
	}
	w.Config.Services[0].Servers[1].Checks[0].LastKnown = false
	again = Restart(w.Config, w.Book, w.Memory(), w.now)
	if v := again.View()[0].Servers[1]; !v.Up {
		t.Errorf("%+v", v)
	}
}

// A reload between results neither clears their count nor adds to it.
func TestReloadKeepsCount(t *testing.T) {
	w := newWorld(t, checked+three)
	again := func() { w.Core, _ = w.Reload(load(t, checked+three), w.now) }
	for range 3 {
		w.expect("one failure", w.result("a", "web", bad), "")
		again()
		w.expect("a success between", w.result("a", "web", good), "")
		again()
	}
	w.expect("one failure", w.result("a", "web", bad), "")
	again()
	again()
	w.expect("two in a row", w.result("a", "web", bad), "server-down a: check web: timeout")
	w.expect("one success", w.result("a", "web", good), "")
	again()
	w.expect("a failure between", w.result("a", "web", bad), "")
	again()
	w.expect("one success", w.result("a", "web", good), "")
	again()
	w.expect("two in a row", w.result("a", "web", good), "server-up a: check web: fine")
}

func TestFind(t *testing.T) {
	w := newWorld(t, checked+three)
	for _, c := range []struct{ server, service, want string }{
		{"a", "", ""}, {"172.16.0.1", "", ""}, {"172.16.0.1:80", "web", ""}, {"a", "10.20.0.1:80/tcp", ""}, {"a", "10.20.0.1:80", ""},
		{"x", "", `server "x": the configuration has none of that name or address`},
		{"x", "web", `server "x": service web has none of that name or address`},
		{"a", "wob", `service "wob": the configuration has none of that name (it has web)`},
	} {
		ids, err := w.Find(c.server, c.service)
		if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want || err == nil && ids[0] != w.id("a") {
			t.Errorf("%+v: %v, %v", c, ids, err)
		}
	}
}
