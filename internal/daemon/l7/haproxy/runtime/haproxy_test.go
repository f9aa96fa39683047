// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/haproxytest"
)

// version is major and minor.
type version [2]int

func (v version) AtLeast(major, minor int) bool {
	return v[0] > major || v[0] == major && v[1] >= minor
}

// proxy is a HAProxy that runs in a network namespace.
type proxy struct {
	*haproxytest.Host
	dir     string
	master  Master
	worker  Client
	version version
}

// start runs HAProxy with sections of a configuration.
func start(t *testing.T, sections string) *proxy {
	t.Helper()
	p := &proxy{Host: haproxytest.New(t), dir: t.TempDir()}
	p.worker.Path, p.master.Path = filepath.Join(p.dir, "runtime.sock"), filepath.Join(p.dir, "master.sock")
	p.write(t, sections)
	c := exec.Command("haproxy", "-W", "-S", p.master.Path, "-f", filepath.Join(p.dir, "haproxy.cfg"))
	var messages strings.Builder
	c.Stderr = &messages
	p.Start(c)
	exit := make(chan error, 1)
	go func() { exit <- c.Wait() }()
	t.Cleanup(func() {
		_ = c.Process.Kill() // the worker ends with it
		<-exit
		if t.Failed() {
			t.Log(messages.String())
		}
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := p.master.Ready(t.Context(), c.Process.Pid); err == nil {
			break
		}
		select {
		case err := <-exit:
			exit <- err
			t.Fatalf("HAProxy ends: %v", err)
		default:
		}
		if time.Now().After(end) {
			t.Fatal("HAProxy does not start")
		}
	}
	info, err := p.worker.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	major, rest, _ := strings.Cut(info["Version"], ".")
	minor, _, _ := strings.Cut(rest, ".")
	p.version[0], _ = strconv.Atoi(major)
	p.version[1], _ = strconv.Atoi(minor)
	if !p.version.AtLeast(2, 6) {
		t.Fatalf("HAProxy is of version %q", info["Version"])
	}
	return p
}

func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

func (p *proxy) write(t *testing.T, sections string) {
	t.Helper()
	text := "global\n stats socket " + p.worker.Path + " level admin expose-fd listeners\n nbthread 1\ndefaults\n mode http\n timeout connect 1s\n timeout client 20s\n timeout server 20s\n" + sections + "\n"
	if err := os.WriteFile(filepath.Join(p.dir, "haproxy.cfg"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// static is what HAProxy refuses where a method is static: the reference says so, and imbang
// renders none.
var static = []Rule{
	{Change: "A server is added", When: "the method is static", Probe: &Probe{[]string{"balance source", server}, []string{"add server probe/s2 127.0.0.1:9"}, "Backend must use a dynamic load balancing"}},
	{Change: "A weight changes", When: "the method is static", Probe: &Probe{[]string{"balance source", server}, []string{"set server probe/s1 weight 7"}, "Backend is using a static LB algorithm"}},
}

// What the rules say is what HAProxy says.
func TestRules(t *testing.T) {
	var sections strings.Builder
	rules := append(Rules(), static...)
	for i, r := range rules {
		if r.Probe != nil {
			sections.WriteString("backend probe" + strconv.Itoa(i) + "\n " + strings.Join(r.Probe.Backend, "\n ") + "\n")
		}
	}
	p := start(t, sections.String())
	asked := 0
	for i, r := range rules {
		if r.Probe == nil {
			continue
		}
		asked++
		reply := ""
		for _, line := range r.Probe.Commands {
			var err error
			if reply, err = p.worker.ask(t.Context(), strings.ReplaceAll(line, "probe/", "probe"+strconv.Itoa(i)+"/")+"\n"); err != nil {
				t.Fatal(err)
			}
		}
		if refused := strings.Contains(reply, r.Probe.Refusal); refused != r.Needed(p.version) {
			t.Errorf("HAProxy %v, %s, %s: it replies %q", p.version, r.Change, r.When, reply)
		}
	}
	if asked < 5 {
		t.Errorf("HAProxy was asked %d questions", asked)
	}
}

const twoServers = "frontend shop\n bind 127.0.0.1:8080\n default_backend web\nbackend web\n balance roundrobin\n http-reuse always\n server a 127.0.0.1:9001\n server b 127.0.0.1:9002\n"

// get returns a reply of HAProxy's.
func get(t *testing.T, c *http.Client) string {
	t.Helper()
	reply, err := haproxytest.Get(c, "http://127.0.0.1:8080/")
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// A plan that was made from two configurations is carried out, and HAProxy then does as the
// second one says.
func TestPlanCarriedOut(t *testing.T) {
	p := start(t, twoServers)
	for i, name := range []string{"a", "b", "c", "d"} {
		p.Serve(name, "127.0.0.1:900"+strconv.Itoa(i+1))
	}
	server := func(name string, port uint16) l7.Server {
		return l7.Server{Name: name, Address: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port), Weight: 1}
	}
	side := func(states l7.States, servers ...l7.Server) Side {
		return Side{&l7.Config{Backends: []l7.Backend{{Name: "web", Method: l7.RoundRobin, Servers: servers}}}, states}
	}
	id := func(name string) l7.ServerID { return l7.ServerID{Backend: "web", Server: name} }
	kept := p.Client(true)
	limited := server("a", 9001)
	limited.MaxConnections = 7
	now := side(nil, server("a", 9001), server("b", 9002))
	for _, c := range []struct {
		what string
		to   Side
		want string // who replies
	}{
		{"as configured", now, "ab"},
		{"dead", side(l7.States{id("a"): {Health: l7.Down, Weight: 1}}, server("a", 9001), server("b", 9002)), "b"},
		{"alive", now, "ab"},
		{"drained", side(l7.States{id("b"): {Health: l7.Drain, Weight: 1}}, server("a", 9001), server("b", 9002)), "a"},
		{"another address, still drained", side(l7.States{id("b"): {Health: l7.Drain, Weight: 1}}, server("a", 9001), server("b", 9003)), "a"},
		{"alive there", side(nil, server("a", 9001), server("b", 9003)), "ac"},
		{"another address", side(nil, server("a", 9001), server("b", 9004)), "ad"},
		{"weight 0", side(l7.States{id("a"): {Weight: 0}}, server("a", 9001), server("b", 9004)), "d"},
		{"one more, and a limit", side(nil, limited, server("b", 9004), server("n", 9002)), "adb"},
		{"one less", side(nil, limited, server("n", 9002)), "ab"},
		{"it is there again", side(nil, limited, server("n", 9002), server("b", 9003)), "abc"},
	} {
		plan := Changes(now, c.to, p.version, func(_ *l7.Backend, s *l7.Server) []string {
			return []string{"weight", strconv.Itoa(s.Weight)}
		})
		if plan.Reload != nil {
			t.Fatalf("%s: a reload: %v", c.what, plan.Reload)
		}
		for _, command := range plan.Commands {
			err := p.worker.Run(t.Context(), command)
			for IsBusy(err) {
				time.Sleep(10 * time.Millisecond)
				err = p.worker.Run(t.Context(), command)
			}
			if err != nil {
				t.Fatalf("%s: %v", c.what, err)
			}
		}
		now = c.to
		got := map[string]int{}
		for range 12 {
			got[get(t, kept)]++
		}
		for _, name := range c.want {
			if got[string(name)] != 12/len(c.want) {
				t.Errorf("%s: replies by server %v; want as many of each of %s", c.what, got, c.want)
				break
			}
		}
	}
	states, err := p.worker.ServerStates(t.Context())
	if err != nil || len(states) != 3 {
		t.Fatalf("states: %v, %v", states, err)
	}
	for _, s := range states {
		if s.Maintenance || s.Weight != 1 || s.Backend != "web" || s.ID == 0 {
			t.Errorf("state: %+v", s)
		}
	}
	stats, err := p.worker.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	limit := ""
	for _, s := range stats {
		if s["pxname"] == "web" && s["svname"] == "a" {
			limit = s["slim"]
		}
	}
	if limit != "7" {
		t.Errorf("the limit of connections of a is %q", limit)
	}
}

// Errors name the object; nothing is done after one.
func TestRefusals(t *testing.T) {
	p := start(t, twoServers)
	id := l7.ServerID{Backend: "web", Server: "x"}
	err := p.worker.Run(t.Context(), append(SetHealth(id, l7.Down), SetWeight(l7.ServerID{Backend: "web", Server: "a"}, 0))...)
	var r *Refused
	if !errors.As(err, &r) || !r.Gone() || err.Error() != "server web/x: HAProxy refuses `set server web/x state maint`: No such server." {
		t.Errorf("a server that does not exist: %v", err)
	}
	if states, err := p.worker.ServerStates(t.Context()); err != nil || states[0].Weight != 1 {
		t.Errorf("after a refusal: %+v, %v", states, err)
	}
	// Words are escaped: it is HAProxy that says which file it cannot load.
	err = p.worker.Run(t.Context(), AddServer(id, netip.MustParseAddrPort("127.0.0.1:9"), "ssl", "sni", "req.hdr(host),host_only", "verify", "required", "ca-file", `/a b;c\d'"`))
	if err == nil || !strings.Contains(err.Error(), `unable to load /a b;c\d'"`) {
		t.Errorf("a file with special characters: %v", err)
	}
	err = p.worker.Run(t.Context(), Command{About: "server web/a", Line: "frobnicate"})
	if err == nil || strings.Contains(err.Error(), "\n") || len(err.Error()) > 200 || !strings.Contains(err.Error(), "Unknown command") {
		t.Errorf("an unknown command: %v", err)
	}
	for _, pem := range []string{"", "no certificate", strings.Split(haproxytest.Certificate(t, "x.example"), "-----BEGIN EC")[0]} {
		if err := p.worker.SetCertificate(t.Context(), "/x.pem", pem); err == nil || !strings.HasPrefix(err.Error(), "certificate /x.pem: the old one stays in use: ") {
			t.Errorf("a bad certificate: %v", err)
		}
	}
	if err := p.worker.SetCertificate(t.Context(), "/x.pem", haproxytest.Certificate(t, "x.example")); err == nil || !strings.Contains(err.Error(), "not referenced by the configuration") {
		t.Errorf("a certificate that HAProxy has not: %v", err)
	}
}

// A reload's outcome is reported. Verdicts reach the current worker, and streams of a dead
// server end in an old one, too.
func TestMaster(t *testing.T) {
	p := start(t, twoServers)
	a, b := p.Serve("a", "127.0.0.1:9001"), p.Serve("b", "127.0.0.1:9002")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	before, err := p.master.Processes(ctx)
	if err != nil || before.Reloads != 0 || len(before.Workers) != 1 || len(before.Old) != 0 {
		t.Fatalf("processes: %+v, %v", before, err)
	}

	p.write(t, twoServers+" server c nowhere:\n")
	got, err := p.master.Reload(ctx)
	if !errors.Is(err, ErrReload) || got.Failed != 1 || got.Workers[0] != before.Workers[0] {
		t.Errorf("a reload that fails: %+v, %v", got, err)
	}

	// One request to each server.
	replies := make(chan string, 2)
	for range 2 {
		client := p.Client(false)
		go func() {
			reply, err := haproxytest.Get(client, "http://127.0.0.1:8080/slow?12s")
			if err != nil {
				reply = "failed"
			}
			replies <- reply
		}()
	}
	await(t, "the requests are under way", func() bool { return a.Requests() == 1 && b.Requests() == 1 })
	p.write(t, twoServers)
	got, err = p.master.Reload(ctx)
	if err != nil || got.Failed != 0 || got.Workers[0] == before.Workers[0] || len(got.Old) != 1 || got.Old[0] != before.Workers[0] {
		t.Fatalf("a reload: %+v, %v", got, err)
	}
	id := l7.ServerID{Backend: "web", Server: "a"}
	old, err := p.master.Everywhere(ctx, append(SetHealth(id, l7.Down), SetWeight(id, 3))...)
	if err != nil || !slices.Equal(old, got.Old) {
		t.Fatalf("everywhere: %v, %v", old, err)
	}
	states, err := p.worker.ServerStates(ctx)
	if err != nil || !states[0].Maintenance || states[0].Weight != 3 || states[1].Maintenance {
		t.Errorf("the current worker: %+v, %v", states, err)
	}
	if first, second := <-replies, <-replies; first != "failed" || second != "b" {
		t.Errorf("the requests that were under way: %s, %s", first, second)
	}
}
