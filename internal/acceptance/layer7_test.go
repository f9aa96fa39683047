// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/carry"
	"imbang/internal/daemon/l7/haproxy/runtime"
	"imbang/internal/daemon/l7/haproxytest"
	"imbang/internal/daemon/l7/supervise"
	"imbang/internal/daemon/place"
)

// proxied is a node of layer 7: imbang run, imbang proxy with HAProxy, and three servers.
type proxied struct {
	t       *testing.T
	host    *haproxytest.Host
	dir     string
	servers []*haproxytest.Server
	program string // imbang
	search  string // of programs, before PATH; "": nowhere else
	daemon  *exec.Cmd
	proxy   *exec.Cmd
}

const (
	webPlain, webTLS = "127.0.0.1:8080", "127.0.0.1:8443"
	// webChecks find a server that refuses connections within 1.4 s.
	webChecks = `
checks:
  web: {http: {}, interval: 1 s, fast_interval: 200 ms, timeout: 1 s, rise: 2, fall: 3, jitter: 0 %}
`
)

// webConfig is one with three servers. In it, DIR stands for a directory.
func webConfig(more string, servers ...string) string {
	text := webChecks + `
listeners:
  - name: shop
    bind: ["` + webPlain + `"]
    monitor: {path: /imbang-health}
    backend: web
    log: {format: combined, file: DIR/access.log}
  - name: secure
    bind: ["` + webTLS + `"]
    tls: {certificates: [DIR/shop.pem]}
    http2: true
    backend: web
backends:
  - name: web
    checks: [web]
    servers:
`
	for _, s := range servers {
		text += "      - " + s + "\n"
	}
	return text + more
}

var webServers = []string{`{name: s1, address: "127.0.1.1:8000"}`, `{name: s2, address: "127.0.1.2:8000"}`, `{name: s3, address: "127.0.1.3:8000"}`}

func newProxied(t *testing.T, config string) *proxied {
	t.Helper()
	return proxiedIn(t, haproxytest.New(t), "s", config)
}

// proxiedIn makes it in a namespace. Replies are the servers' names, which begin with a prefix.
func proxiedIn(t *testing.T, h *haproxytest.Host, prefix, config string) *proxied {
	t.Helper()
	w := prepared(t, h, prefix)
	w.configure(config)
	w.start()
	return w
}

// prepared has servers and a certificate, and no configuration yet.
func prepared(t *testing.T, h *haproxytest.Host, prefix string) *proxied {
	t.Helper()
	w := &proxied{t: t, host: h, dir: t.TempDir(), program: executable}
	for i := 1; i <= 3; i++ {
		w.servers = append(w.servers, h.Serve(fmt.Sprintf("%s%d", prefix, i), fmt.Sprintf("127.0.1.%d:8000", i)))
	}
	w.certificate(haproxytest.Certificate(t, "first.example"))
	return w
}

func (w *proxied) start() {
	w.t.Helper()
	w.t.Cleanup(w.end)
	w.startDaemon()
	w.startProxy()
	// Both publish a configuration if there is none: a reload may follow, which no test is to count.
	w.await("HAProxy does what the daemon wants", func() bool { p := w.status().Proxy; return p.Version != "" && p.Error == "" })
}

func (w *proxied) path(name string) string { return filepath.Join(w.dir, name) }

func (w *proxied) configure(text string) {
	w.t.Helper()
	w.write("imbang.yaml", strings.ReplaceAll(text, "DIR", w.dir))
}

func (w *proxied) certificate(text string) { w.write("shop.pem", text) }

func (w *proxied) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(w.path(name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// begin starts a command of imbang's whose log is kept.
func (w *proxied) begin(args ...string) *exec.Cmd {
	w.t.Helper()
	log, err := os.OpenFile(w.path(args[0]+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		w.t.Fatal(err)
	}
	defer log.Close()
	c := exec.Command(w.program, args...)
	c.Stderr, c.Dir = log, w.dir
	if w.search != "" {
		c.Env = append(os.Environ(), "PATH="+w.search+":"+os.Getenv("PATH"))
	}
	w.host.Start(c)
	return c
}

func (w *proxied) startDaemon() {
	w.t.Helper()
	w.daemon = w.begin("run", "-c", w.path("imbang.yaml"), "--state", w.path("state"))
	w.await("the daemon answers", func() bool { return imbang(w.t, w.host.Namespace(), "", "events", "-n", "0").status == 0 })
}

func (w *proxied) startProxy() {
	w.t.Helper()
	w.proxy = w.begin("proxy", "-c", w.path("imbang.yaml"), "--grace", "1s")
	w.await("HAProxy runs", func() bool { return w.haproxy().Phase == supervise.Running })
}

// haproxy is what the supervisor says.
func (w *proxied) haproxy() (s supervise.Status) {
	o := imbang(w.t, w.host.Namespace(), "", "proxy", "status", "-o", "json")
	_ = json.Unmarshal([]byte(o.stdout), &s)
	return s
}

func (w *proxied) await(what string, f func() bool) {
	w.t.Helper()
	for began := time.Now(); time.Since(began) < patience; time.Sleep(20 * time.Millisecond) {
		if f() {
			return
		}
	}
	w.t.Fatalf("not within %s: %s", patience, what)
}

func (w *proxied) do(args ...string) string {
	w.t.Helper()
	return must(w.t, w.host.Namespace(), "", args...)
}

func (w *proxied) status() *api.Status {
	w.t.Helper()
	var s struct{ Daemon *api.Status }
	if err := json.Unmarshal([]byte(w.do("status", "-o", "json")), &s); err != nil || s.Daemon == nil {
		w.t.Fatalf("%v, %+v", err, s)
	}
	return s.Daemon
}

// states are those of the servers of the first backend.
func (w *proxied) states() string {
	w.t.Helper()
	var words []string
	for _, s := range w.status().Proxy.Backends[0].Servers {
		words = append(words, s.Name+" "+s.State)
	}
	return strings.Join(words, ", ")
}

// settle waits until a file does not grow any more.
func (w *proxied) settle(name string) {
	w.t.Helper()
	last := int64(-1)
	w.await(name+" does not grow", func() bool {
		info, err := os.Stat(w.path(name))
		if err != nil || info.Size() == last {
			return err == nil
		}
		last = info.Size()
		time.Sleep(2 * time.Second)
		return false
	})
}

// metrics are those of the daemon.
func (w *proxied) metrics() string {
	w.t.Helper()
	r, err := w.host.Client(false).Get("http://127.0.0.1:9106/metrics")
	if err != nil {
		w.t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

// get sends requests on connections of their own, and counts who replies.
func (w *proxied) get(n int) map[string]int {
	w.t.Helper()
	client, got := w.host.Client(false), map[string]int{}
	for range n {
		reply, err := haproxytest.Get(client, "http://"+webPlain+"/")
		if err != nil {
			w.t.Fatal(err)
		}
		got[reply]++
	}
	return got
}

// shared is as get, and says each server's share of all requests meanwhile.
func (w *proxied) shared(n int) (got map[string]int, share []float64) {
	w.t.Helper()
	before, all := make([]int64, len(w.servers)), 0.0
	for i, s := range w.servers {
		before[i] = s.Requests()
	}
	got = w.get(n)
	for i, s := range w.servers {
		share = append(share, float64(s.Requests()-before[i]))
		all += share[i]
	}
	for i := range share {
		share[i] /= all
	}
	return got, share
}

func (w *proxied) end() {
	for _, c := range []*exec.Cmd{w.daemon, w.proxy} {
		if c != nil {
			_ = c.Process.Signal(syscall.SIGTERM)
			_ = c.Wait()
		}
	}
	if w.t.Failed() {
		for _, name := range []string{"run", "proxy"} {
			text, _ := os.ReadFile(w.path(name + ".log"))
			w.t.Logf("imbang %s said:\n%s", name, text)
		}
	}
}

func kill(t *testing.T, c *exec.Cmd, s syscall.Signal) {
	t.Helper()
	if err := c.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
}

// shares says how far a count is from the share of each server.
func shares(got map[string]int, want map[string]int) string {
	var odd []string
	for name, n := range want {
		if got[name] != n {
			odd = append(odd, fmt.Sprintf("%s got %d, want %d", name, got[name], n))
		}
	}
	if len(got) != len(want) {
		odd = append(odd, fmt.Sprint(got))
	}
	return strings.Join(odd, "; ")
}

// One health and one drain: what the daemon knows is what HAProxy does.
func TestLayer7(t *testing.T) {
	w := newProxied(t, webConfig("", webServers...))
	w.await("all are up", func() bool { return w.states() == "s1 up, s2 up, s3 up" && len(w.get(6)) == 3 })
	if odd := shares(w.get(60), map[string]int{"s1": 20, "s2": 20, "s3": 20}); odd != "" {
		t.Error(odd)
	}
	load := w.host.Load("http://"+webPlain+"/", 100)

	// A drained server gets no request once the verb has returned.
	if said := w.do("drain", "s1"); !strings.Contains(said, "backend web: server s1 is draining") {
		t.Errorf("drain says %q", said)
	}
	for args, want := range map[string]string{
		"drain": "s1\ns2\ns3\n", "drain s1 --service": "web\n", "weight --backend-server": "web/s1\nweb/s2\nweb/s3\n", "proxy drain": "",
	} {
		if said := w.do(append(append([]string{"__complete"}, strings.Fields(args)...), "")...); said != want+":4\n" {
			t.Errorf("%s is completed by %q, want %q", args, said, want)
		}
	}
	// The load takes turns, too, so the share of a server is that of both.
	if got, share := w.shared(40); got["s1"] > 0 || got["s2"]+got["s3"] != 40 || share[1] < 0.4 || share[2] < 0.4 {
		t.Errorf("after a drain: %v, shares %v", got, share)
	}
	w.do("enable", "s1")
	w.await("s1 has requests again", func() bool { return w.get(6)["s1"] > 0 })

	// Weights.
	w.do("weight", "--backend-server", "web/s2", "--set", "2")
	if _, share := w.shared(80); share[1] < 0.4 || share[1] > 0.6 {
		t.Errorf("of weight 2 of 4: shares %v", share)
	}
	w.do("enable", "s2")

	// A dead server.
	dead := span{begin: time.Now()}
	w.servers[2].Close()
	dead.end = time.Now().Add(500 * time.Millisecond) // until HAProxy notices
	w.await("s3 is down", func() bool { return w.states() == "s1 up, s2 up, s3 down" })
	if odd := shares(w.get(40), map[string]int{"s1": 20, "s2": 20}); odd != "" && w.get(40)["s3"] > 0 {
		t.Errorf("without s3: %s", odd)
	}
	// A reload does not revive it.
	reloads := w.haproxy().Reloads
	w.configure(webConfig("    retries: 2\n", webServers...))
	w.do("reload")
	w.await("HAProxy has reloaded", func() bool { return w.haproxy().Reloads > reloads })
	if got := w.get(40); got["s3"] > 0 {
		t.Errorf("after a reload: %v", got)
	}
	w.host.Serve("s3", "127.0.1.3:8000")
	w.await("s3 is up", func() bool { return w.states() == "s1 up, s2 up, s3 up" })
	all := load.Stop()
	// Only what was under way at s3 when that died can have failed.
	failed := slices.DeleteFunc(haproxytest.Failed(all), func(r haproxytest.Request) bool { return dead.during(r.Begin, r.End) })
	if len(failed) > 2 {
		t.Errorf("%d of %d requests failed, the first one: %v", len(failed), len(all), failed[0].Err)
	}
	if s := w.status(); len(s.Alarms) > 0 {
		t.Errorf("alarms %+v", s.Alarms)
	}
}

// Whatever of imbang is killed, requests go on. TestLayer7HAProxyKilled is the other half.
func TestLayer7Killed(t *testing.T) {
	w := newProxied(t, webConfig("", webServers...))
	w.servers[2].Close()
	w.await("s3 is down", func() bool { return w.states() == "s1 up, s2 up, s3 down" })
	load := w.host.Load("http://"+webPlain+"/", 100)
	is := w.haproxy()

	kill(t, w.daemon, syscall.SIGKILL)
	w.get(20)
	w.startDaemon()
	w.await("s3 is still down", func() bool { return w.states() == "s1 up, s2 up, s3 down" })

	kill(t, w.proxy, syscall.SIGKILL)
	w.get(20)
	w.startProxy()

	since := w.haproxy().Since
	if err := w.proxy.Process.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	w.await("the supervisor's new program", func() bool { s := w.haproxy(); return s.Phase == supervise.Running && s.Since.After(since) })
	now := w.haproxy()
	if now.HAProxy != is.HAProxy || fmt.Sprint(now.Workers) != fmt.Sprint(is.Workers) {
		t.Errorf("HAProxy was %d %v, is %d %v", is.HAProxy, is.Workers, now.HAProxy, now.Workers)
	}
	if failed := haproxytest.Failed(load.Stop()); len(failed) > 0 {
		t.Errorf("%d requests failed, the first one: %v", len(failed), failed[0].Err)
	}
}

// A new certificate is used without a reload; one that is damaged is not, and the alarm says so.
func TestLayer7Certificates(t *testing.T) {
	w := newProxied(t, webConfig("daemon: {metrics: {listen: \"127.0.0.1:9106\"}}\n", webServers...))
	presents := func(want string) func() bool {
		return func() bool { got, err := w.host.Presented(webTLS); return err == nil && got == want }
	}
	w.await("the first certificate", presents("first.example"))
	before := w.haproxy().Reloads
	w.certificate(haproxytest.Certificate(t, "second.example"))
	w.await("the second one", presents("second.example"))
	if n := w.haproxy().Reloads - before; n > 0 {
		t.Errorf("%d reloads", n)
	}
	w.certificate("nothing")
	alarm := func() string {
		for _, a := range w.status().Alarms {
			if a.Name == "certificate" {
				return a.Text
			}
		}
		return ""
	}
	w.await("the alarm", func() bool {
		return strings.Contains(alarm(), "shop.pem") && strings.Contains(alarm(), "the last good one stays in use")
	})
	if said := w.do("events", "-n", "5"); !strings.Contains(said, "shop.pem: tls: failed to find any PEM data") || !strings.Contains(said, "the last good one stays in use") {
		t.Errorf("events say %q", said)
	}
	if said := w.metrics(); !strings.Contains(said, "\nimbang_alarm{alarm=\"certificate\"} 1\n") {
		t.Errorf("metrics say %q", said)
	}
	// Neither a reload nor a start loses it.
	w.configure(webConfig("    retries: 2\n", webServers...))
	w.do("reload")
	w.await("a reload", func() bool { return w.haproxy().Reloads > before })
	w.await("the second one after a reload", presents("second.example"))
	w.certificate(haproxytest.Certificate(t, "third.example"))
	w.await("the third one", presents("third.example"))
	w.await("the alarm ends", func() bool { return alarm() == "" })
}

// What HAProxy refuses changes nothing.
func TestLayer7Refused(t *testing.T) {
	good := webConfig("", webServers...)
	w := newProxied(t, good)
	before := w.haproxy().Reloads
	w.configure(webConfig("    raw: [\"no such keyword\"]\n", webServers...))
	for _, verb := range []string{"plan", "reload"} {
		o := imbang(t, w.host.Namespace(), "", verb)
		if o.status != 3 || !strings.Contains(o.stderr, "backend web, raw line 1") || !strings.Contains(o.stderr, "HAProxy") {
			t.Errorf("%s: status %d: %s", verb, o.status, o.stderr)
		}
	}
	if o := imbang(t, w.host.Namespace(), "", "check", w.path("imbang.yaml")); o.status != 1 || !strings.Contains(o.stdout, "backend web, raw line 1") {
		t.Errorf("check: status %d: %s", o.status, o.stdout)
	}
	w.get(10)
	if s := w.haproxy(); s.Reloads > before || s.Failed > 0 {
		t.Errorf("%d reloads before, now %+v", before, s)
	}
	// So does one without most of the servers, as for services; imbang plan shows it.
	w.configure(webConfig("", webServers[0]))
	said := w.do("plan")
	for _, want := range []string{"delete backend web: server s2, 127.0.1.2:8000\n", "delete backend web: server s3, 127.0.1.3:8000\n"} {
		if !strings.Contains(said, want) {
			t.Errorf("plan says %q, want %q", said, want)
		}
	}
	const limit = "refused: 2 of 3 servers would be deleted, more than daemon.max_removed of 50 % (imbang plan lists them; --force does it)\n"
	if o := imbang(t, w.host.Namespace(), "", "reload"); o.status != 3 || !strings.HasSuffix(o.stderr, limit) || len(w.get(30)) != 3 {
		t.Errorf("status %d: %s", o.status, o.stderr)
	}
	// Neither does the next daemon.
	kill(t, w.daemon, syscall.SIGTERM)
	if o := imbang(t, w.host.Namespace(), "", "run", "-c", w.path("imbang.yaml"), "--state", w.path("state")); o.status != 3 || !strings.Contains(o.stderr, "2 of 3 servers") || len(w.get(30)) != 3 {
		t.Errorf("status %d: %s", o.status, o.stderr)
	}
	w.configure(good)
	w.startDaemon()
	w.do("reload")
	// Without listeners, nothing is accepted any more.
	w.configure("services: []\n")
	w.do("reload", "--force")
	client := w.host.Client(false)
	w.await("no connection is accepted", func() bool {
		_, err := haproxytest.Get(client, "http://"+webPlain+"/")
		return err != nil
	})
}

// The file is applied when it has changed, and by a signal.
func TestLayer7ReloadedByItself(t *testing.T) {
	config := func(streams string) string {
		return webConfig("daemon: {watch: true}\nproxy: {streams: "+streams+"}\n", webServers...)
	}
	w := newProxied(t, config("50"))
	before := w.haproxy().Reloads
	w.configure(config("60"))
	w.await("the changed file is applied", func() bool { return w.haproxy().Reloads == before+1 })
	w.configure(config("70"))
	for range 3 {
		if err := w.daemon.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	w.await("the file is applied by a signal", func() bool { return w.haproxy().Reloads == before+2 })
	said := func(by string) int { return strings.Count(w.do("events"), by) }
	w.await("events", func() bool { return said("reload by the changed file") == 1 && said("reload by SIGHUP") > 0 })
	if n := said("reload by SIGHUP"); n > 3 {
		t.Errorf("%d reloads by 3 signals", n)
	}
}

// A port that another program has: the alarm says so until HAProxy has it.
func TestLayer7PortTaken(t *testing.T) {
	h := haproxytest.New(t)
	other := h.Serve("other", webPlain)
	w := &proxied{t: t, host: h, dir: t.TempDir(), program: executable}
	for i := 1; i <= 3; i++ {
		w.servers = append(w.servers, h.Serve(fmt.Sprintf("s%d", i), fmt.Sprintf("127.0.1.%d:8000", i)))
	}
	w.certificate(haproxytest.Certificate(t, "first.example"))
	w.configure(webConfig("", webServers...))
	t.Cleanup(w.end)
	w.startDaemon()
	w.proxy = w.begin("proxy", "-c", w.path("imbang.yaml"), "--grace", "1s")
	alarm := func() string {
		for _, a := range w.status().Alarms {
			if a.Name == "proxy" {
				return a.Text
			}
		}
		return ""
	}
	w.await("the alarm, and to root the reason", func() bool {
		return strings.HasPrefix(alarm(), "HAProxy does not run, and is started again and again") &&
			strings.Contains(w.status().Proxy.Error, "for frontend shop: cannot bind socket (Address already in use) for ["+webPlain+"]")
	})
	w.await("status says that it waits", func() bool { return strings.Contains(w.do("status"), "  waiting  ") })
	other.Close()
	w.await("HAProxy runs", func() bool { return w.haproxy().Phase == supervise.Running })
	w.await("the alarm ends", func() bool { return alarm() == "" })
	w.get(6)
}

// Once the daemon has not been there for long, HAProxy checks the servers itself, until the daemon
// is back.
func TestLayer7Fallback(t *testing.T) {
	w := newProxied(t, webConfig("proxy: {fallback: 5 s}\n", webServers...))
	w.await("all are up", func() bool { return w.states() == "s1 up, s2 up, s3 up" })
	w.do("drain", "s1")
	w.servers[2].Close()
	w.await("s3 is down", func() bool { return strings.HasSuffix(w.states(), "s3 down") })
	kill(t, w.daemon, syscall.SIGKILL)
	// The configuration is named while HAProxy still reads it.
	w.await("the fallback", func() bool {
		s := w.haproxy()
		return strings.HasSuffix(s.Configuration, "/fallback") && s.Phase == supervise.Running
	})
	w.host.Serve("s3", "127.0.1.3:8000")
	w.await("HAProxy finds s3 up", func() bool { return w.found("s3", l7.Up) })
	if got := w.get(10); got["s3"] == 0 {
		t.Errorf("s3 is back and gets no requests: %v", got)
	}
	w.servers[1].Close()
	w.await("HAProxy finds s2 down", func() bool { return w.found("s2", l7.Down) })
	if got := w.get(20); got["s1"] > 0 {
		t.Errorf("a drained server gets requests: %v", got)
	}
	// The next daemon goes on with what HAProxy has found.
	before, load := w.haproxy().Reloads, w.host.Load("http://"+webPlain+"/", 100)
	w.startDaemon()
	if got := w.states(); !strings.HasSuffix(got, "s2 down, s3 up") {
		t.Errorf("after the fallback: %s", got)
	}
	w.await("the daemon's own", func() bool { return w.haproxy().Reloads > before })
	if got := w.haproxy().Configuration; strings.HasSuffix(got, "/fallback") {
		t.Errorf("configuration %s", got)
	}
	time.Sleep(1500 * time.Millisecond)
	if got := w.haproxy().Reloads; got != before+1 {
		t.Errorf("%d reloads, want one", got-before)
	}
	if failed := haproxytest.Failed(load.Stop()); len(failed) > 0 {
		t.Errorf("%d requests failed, the first one with: %v", len(failed), failed[0].Err)
	}
	w.do("enable", "s1")
	w.await("s1 is back", func() bool { return w.get(10)["s1"] > 0 })
}

// found reports whether HAProxy, which checks servers itself, has found one to be so.
func (w *proxied) found(server string, health l7.Health) bool {
	w.t.Helper()
	is, known := carry.Found(w.t.Context(), proxyDir(w.t, w.host))[l7.ServerID{Backend: "web", Server: server}]
	return known && is == health
}

// runtimeOf is the socket of a host's HAProxy.
func runtimeOf(t *testing.T, h *haproxytest.Host) *runtime.Client {
	t.Helper()
	return &runtime.Client{Path: supervise.RuntimeSocket(proxyDir(t, h))}
}

// proxyDir is where a host's imbang proxy has its files.
func proxyDir(t *testing.T, h *haproxytest.Host) (dir string) {
	t.Helper()
	if err := h.Do(func() (err error) { dir, err = place.ProxyDir(); return err }); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Access logs are written, and go on in a file of the name after a rotation.
func TestLayer7AccessLog(t *testing.T) {
	w := newProxied(t, strings.Replace(webConfig("", webServers...), "http2: true\n", "http2: true\n    log: {format: combined, file: DIR/secure.log}\n", 1))
	lines := func(name string) int {
		f, err := os.Open(w.path(name))
		if err != nil {
			return 0
		}
		defer f.Close()
		n := 0
		for s := bufio.NewScanner(f); s.Scan(); n++ {
			if !strings.HasPrefix(s.Text(), "127.0.0.1 - - [") {
				t.Fatalf("line %q", s.Text())
			}
		}
		return n
	}
	// HAProxy drops a line, and counts it, if another of its threads does not come to an end with its own.
	r := runtimeOf(t, w.host)
	dropped := func() int {
		info, err := r.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(info["DroppedLogs"])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	// What is not TLS is no request.
	c, err := w.host.Dial(t.Context(), "tcp", webTLS)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "GET / HTTP/1.0\r\n\r\n")
	_, _ = io.Copy(io.Discard, c)
	c.Close()
	w.get(100)
	w.await("100 lines", func() bool { return lines("access.log") == 100-dropped() })
	if text, err := os.ReadFile(w.path("proxy.log")); err != nil || strings.Contains(string(text), "lost") {
		t.Errorf("%v, imbang proxy said:\n%s", err, text)
	}
	kill(t, w.proxy, syscall.SIGKILL)
	w.get(50)
	w.startProxy()
	w.await("those of the time without a supervisor", func() bool { return lines("access.log") == 150-dropped() })
	// More lines than the pipe has room for, without a reader: requests do not wait for one.
	kill(t, w.proxy, syscall.SIGKILL)
	busy := exec.Command("wrk", "-t1", "-c10", "-d2s", "-H", "User-Agent: "+strings.Repeat("x", 900), "http://"+webPlain+"/")
	w.host.Start(busy)
	if err := busy.Wait(); err != nil {
		t.Fatalf("wrk: %v", err)
	}
	w.get(10)
	w.startProxy()
	w.await("lines are written again", func() bool { return lines("access.log") > 200 })
	w.settle("access.log")
	if err := os.Rename(w.path("access.log"), w.path("access.log.1")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1100 * time.Millisecond)
	before := dropped()
	w.get(10)
	w.await("10 lines", func() bool { return lines("access.log") == 10-(dropped()-before) })
	// The node's monitor.
	client := w.host.Client(false)
	if _, err := haproxytest.Get(client, "http://"+webPlain+"/imbang-health"); err != nil {
		t.Error(err)
	}
	for i := 1; i <= 3; i++ {
		w.do("drain", "s"+strconv.Itoa(i))
	}
	if _, err := haproxytest.Get(client, "http://"+webPlain+"/imbang-health"); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("without servers: %v", err)
	}
}
