// SPDX-License-Identifier: Apache-2.0

//go:build measure

package acceptance

import (
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/haproxy"
	"imbang/internal/daemon/l7/haproxy/runtime"
	"imbang/internal/daemon/l7/haproxytest"
	"imbang/internal/lab/measure"
)

// measuredShop is the configuration of docs/bench/layer7-hand.cfg.
func measuredShop(certificate string, at netip.Addr) *l7.Config {
	log := &l7.Log{Format: "combined", File: "/nowhere"}
	routes := []l7.Route{{Match: l7.Match{PathPrefixes: []string{"/api"}}, Target: l7.Target{Backend: "api"}}}
	timeouts := l7.Timeouts{Request: 10 * time.Second, KeepAlive: time.Minute, Client: time.Minute}
	servers := []l7.Server{{Name: "s1", Address: netip.MustParseAddrPort("127.0.1.1:8080"), Weight: 1}, {Name: "s2", Address: netip.MustParseAddrPort("127.0.1.2:8080"), Weight: 1}}
	towards := l7.ServerTimeouts{Connect: 5 * time.Second, Server: time.Minute, Queue: 10 * time.Second, Tunnel: time.Hour}
	return &l7.Config{
		Engine: l7.Engine{User: "haproxy", Group: "haproxy", Threads: 1, MaxConnections: 1000},
		Listeners: []l7.Listener{
			{
				Name: "plain", Bind: []netip.AddrPort{netip.AddrPortFrom(at, 80)}, ForwardedFor: true, Monitor: "/imbang-health", MonitorBackends: 1,
				Timeouts: timeouts, Routes: routes, Default: l7.Target{Backend: "web"}, Log: log,
			},
			{
				Name: "secure", Bind: []netip.AddrPort{netip.AddrPortFrom(at, 443)}, TLS: &l7.TLS{Certificates: []string{certificate}}, HTTP2: true, ForwardedFor: true,
				Timeouts: timeouts, Routes: routes, Default: l7.Target{Backend: "web"}, Log: log,
			},
		},
		Backends: []l7.Backend{
			{Name: "web", Method: l7.LeastConn, Cookie: &l7.Cookie{Name: "SRV", HTTPOnly: true}, Retries: 3, Redispatch: true, Timeouts: towards, Servers: servers},
			{Name: "api", Method: l7.RoundRobin, Retries: 3, Redispatch: true, Timeouts: towards, Servers: servers},
		},
	}
}

// side is one of the HAProxies.
type side struct {
	*haproxytest.Host
	worker int
	stop   func()
}

// launch starts HAProxy with a configuration, and a reader of its logs.
func launch(t *testing.T, h *haproxytest.Host, dir string) side {
	t.Helper()
	reading, writing, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("taskset", "-c", "1", "haproxy", "-W", "-db", "-f", filepath.Join(dir, haproxy.ConfigFile))
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = writing, &said
	h.Start(cmd)
	writing.Close()
	stop := sync.OnceFunc(func() { cmd.Process.Kill(); cmd.Wait(); reading.Close() })
	t.Cleanup(stop)
	go func() { _, _ = io.Copy(io.Discard, reading) }()
	r := &runtime.Client{Path: filepath.Join(dir, "runtime.sock")}
	for range 500 {
		if info, err := r.Info(t.Context()); err == nil {
			worker, _ := strconv.Atoi(info["Pid"])
			return side{h, worker, stop}
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("HAProxy does not start: %s", &said)
	return side{}
}

// startServers starts the servers: another HAProxy, since it takes less of the CPU that it shares with the clients
// than a server in Go does, so that the one that is measured is what limits them.
func startServers(t *testing.T, h *haproxytest.Host, dir string) {
	t.Helper()
	path := filepath.Join(dir, "servers.cfg")
	text := `global
    nbthread 1
defaults
    mode http
    timeout client 1m
frontend servers
    bind 127.0.1.1:8080
    bind 127.0.1.2:8080
    http-request return status 200 content-type text/plain string OK
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("taskset", "-c", "0", "haproxy", "-db", "-f", path)
	h.Start(cmd)
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
}

var (
	wrkRequests = regexp.MustCompile(`(?m)^\s*([0-9]+) requests in`)
	// Time-outs are of clients that were stopped.
	wrkFailed = regexp.MustCompile(`Non-2xx|Socket errors: (?:connect [1-9]|connect 0, read [1-9]|connect 0, read 0, write [1-9])`)
)

// wrk starts one in a host's namespace; wait returns how many requests it has sent.
func wrk(t *testing.T, h *haproxytest.Host, command ...string) (cmd *exec.Cmd, wait func() float64) {
	t.Helper()
	cmd = exec.Command(command[0], command[1:]...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	h.Start(cmd)
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, func() float64 {
		t.Helper()
		err := cmd.Wait()
		m := wrkRequests.FindStringSubmatch(out.String())
		if err != nil || m == nil || wrkFailed.MatchString(out.String()) {
			t.Fatalf("wrk: %v: %s", err, &out)
		}
		n, _ := strconv.ParseFloat(m[1], 64)
		return n
	}
}

// cost is the CPU time of a request, in us, and a client's run.
func (s side) cost(t *testing.T, url string, arguments ...string) (wait func() float64) {
	t.Helper()
	before, err := measure.ProcessTime(s.worker)
	if err != nil {
		t.Fatal(err)
	}
	_, sent := wrk(t, s.Host, append(append([]string{"taskset", "-c", "0", "wrk", "-t1", "-c20", "-d2s"}, arguments...), url)...)
	return func() float64 {
		t.Helper()
		n := sent()
		after, err := measure.ProcessTime(s.worker)
		if err != nil {
			t.Fatal(err)
		}
		return float64(after-before) / 1e3 / n
	}
}

// measuredSides are the rendered configuration, twice, which says how far two equal sides are apart, and files of
// testdata: two with the same features that were written by hand, and one without what protects.
var measuredSides = []string{"rendered", "rendered-again", "hand", "hand-fast", "plain"}

// ofBrowser are the headers of one.
var ofBrowser = []string{
	"User-Agent: Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36",
	"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8",
	"Accept-Language: en-US,en;q=0.9,de;q=0.8", "Accept-Encoding: gzip, deflate, br, zstd",
	"Referer: https://shop.example/catalogue/shoes?page=2&sort=price",
	"Cookie: SRV=s1; session=9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08; _ga=GA1.1.1234567890.1700000000; consent=all",
	`sec-ch-ua: "Chromium";v="126", "Not.A/Brand";v="24"`, "sec-ch-ua-mobile: ?0", `sec-ch-ua-platform: "Windows"`,
	"Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document", "Cache-Control: max-age=0",
}

// newHeads makes a script of wrk's in which each request has a target and a cookie of its own.
const newHeads = `
local n = math.random(1000000)
local path, cookie
function init()
  path, cookie = wrk.path, wrk.headers["Cookie"]
end
function request()
  n = n + 1
  wrk.headers["Cookie"] = cookie .. "; n=" .. n
  return wrk.format(nil, path .. "&n=" .. n)
end
`

// What a request costs with configurations that were written by hand, as a part of what it costs with
// a rendered one: all of them are asked at the same time and share one CPU in turns of milliseconds, so
// that what else the machine does slows all of them down; the clients and servers have the other CPU. They
// are started anew for each round, since where their memory lies makes a difference of a percent.
func TestMeasureLayer7Rendered(t *testing.T) {
	h := haproxytest.New(t)
	base := t.TempDir()
	startServers(t, h, base)
	pem := filepath.Join(base, "server.pem")
	if err := os.WriteFile(pem, []byte(haproxytest.Certificate(t, "shop.example")), 0o600); err != nil {
		t.Fatal(err)
	}
	v, err := haproxy.Detect(t.Context(), "haproxy")
	if err != nil {
		t.Fatal(err)
	}
	var dirs, at []string
	for i, name := range measuredSides {
		dir, address := filepath.Join(base, name), netip.AddrFrom4([4]byte{127, 0, 0, byte(1 + i)})
		if err := os.MkdirAll(filepath.Join(dir, "empty"), 0o755); err != nil {
			t.Fatal(err)
		}
		dirs, at = append(dirs, dir), append(at, address.String())
		if strings.HasPrefix(name, "rendered") {
			r, err := haproxy.Render(measuredShop(pem, address), nil, haproxy.Options{Version: v, Directory: dir, Socket: filepath.Join(dir, "runtime.sock"), Chroot: filepath.Join(dir, "empty")})
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Write(dir); err != nil {
				t.Fatal(err)
			}
			continue
		}
		text, err := os.ReadFile("../../docs/bench/layer7-" + name + ".cfg")
		if err != nil {
			t.Fatal(err)
		}
		written := strings.NewReplacer("DIR/server.pem", pem, "DIR", dir, "ADDRESS", address.String()).Replace(string(text))
		if err := os.WriteFile(filepath.Join(dir, haproxy.ConfigFile), []byte(written), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var browser []string
	for _, h := range ofBrowser {
		browser = append(browser, "-H", h)
	}
	// HAProxy remembers what its searches have found in the last 10 000 texts: these are new ones.
	const target = "/catalogue/shoes/running/2024/item-12345.html?colour=blue"
	script := filepath.Join(base, "new.lua")
	if err := os.WriteFile(script, []byte(newHeads), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name, scheme, path string
		arguments          []string
	}{
		{"plain, kept connections", "http", "/", nil},
		{"plain, a connection for each request", "http", "/api", []string{"-H", "Connection: close"}},
		{"TLS, kept connections", "https", "/", nil},
		{"plain, kept connections, a browser's headers", "http", target, browser},
		{"plain, kept connections, a browser's headers, new in each request", "http", target, append([]string{"-s", script}, browser...)},
	}
	costs := make([][][]float64, len(cases)) // of a case, a side and a round
	for i := range costs {
		costs[i] = make([][]float64, len(dirs))
	}
	for round := range *rounds {
		sides := make([]side, len(dirs))
		for i := range sides {
			i := (i + round) % len(sides)
			sides[i] = launch(t, h, dirs[i])
		}
		for n, c := range cases {
			waits := make([]func() float64, len(sides))
			for i := range sides {
				i := (i + round) % len(sides)
				waits[i] = sides[i].cost(t, c.scheme+"://"+at[i]+c.path, c.arguments...)
			}
			for i, wait := range waits {
				costs[n][i] = append(costs[n][i], wait())
			}
		}
		for _, s := range sides {
			s.stop()
		}
	}
	var rows []layer7Row
	for n, c := range cases {
		for i, name := range measuredSides {
			var ratios []float64
			for round, cost := range costs[n][i] {
				ratios = append(ratios, cost/costs[n][0][round])
			}
			rows = append(rows, layer7Row{Case: c.name, Name: name, CPU: shareOf(costs[n][i]), Ratio: shareOf(ratios), CPURounds: rounded(costs[n][i])})
		}
	}
	noteLayer7(t, func(all *layer7Result) *[]layer7Row { return &all.Configurations }, rows)
}
