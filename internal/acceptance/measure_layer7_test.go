// SPDX-License-Identifier: Apache-2.0

//go:build measure

package acceptance

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/haproxy"
	"imbang/internal/daemon/l7/haproxy/runtime"
	"imbang/internal/daemon/l7/haproxytest"
	"imbang/internal/lab/measure"
	"imbang/internal/lab/stats"
)

// measuredShop is the configuration of testdata/layer7-hand.cfg.
func measuredShop(certificate string) *l7.Config {
	log := &l7.Log{Format: "combined", File: "/nowhere"}
	routes := []l7.Route{{Match: l7.Match{PathPrefixes: []string{"/api"}}, Target: l7.Target{Backend: "api"}}}
	timeouts := l7.Timeouts{Request: 10 * time.Second, KeepAlive: time.Minute, Client: time.Minute}
	servers := []l7.Server{{Name: "s1", Address: netip.MustParseAddrPort("127.0.1.1:8080"), Weight: 1}, {Name: "s2", Address: netip.MustParseAddrPort("127.0.1.2:8080"), Weight: 1}}
	towards := l7.ServerTimeouts{Connect: 5 * time.Second, Server: time.Minute, Queue: 10 * time.Second, Tunnel: time.Hour}
	return &l7.Config{
		Engine: l7.Engine{User: "haproxy", Group: "haproxy", Threads: 1, MaxConnections: 1000},
		Listeners: []l7.Listener{
			{
				Name: "plain", Bind: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:80")}, ForwardedFor: true, Monitor: "/imbang-health", MonitorBackends: 1,
				Timeouts: timeouts, Routes: routes, Default: l7.Target{Backend: "web"}, Log: log,
			},
			{
				Name: "secure", Bind: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:443")}, TLS: &l7.TLS{Certificates: []string{certificate}}, HTTP2: true, ForwardedFor: true,
				Timeouts: timeouts, Routes: routes, Default: l7.Target{Backend: "web"}, Log: log,
			},
		},
		Backends: []l7.Backend{
			{Name: "web", Method: l7.LeastConn, Cookie: &l7.Cookie{Name: "SRV", HTTPOnly: true}, Retries: 3, Redispatch: true, Timeouts: towards, Servers: servers},
			{Name: "api", Method: l7.RoundRobin, Retries: 3, Redispatch: true, Timeouts: towards, Servers: servers},
		},
	}
}

// side is one of the two HAProxies.
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
	cmd := exec.Command("haproxy", "-W", "-db", "-f", filepath.Join(dir, haproxy.ConfigFile))
	cmd.Stdout, cmd.Stderr = writing, os.Stderr
	h.Start(cmd)
	writing.Close()
	go func() { _, _ = io.Copy(io.Discard, reading) }()
	r := &runtime.Client{Path: filepath.Join(dir, "runtime.sock")}
	for range 500 {
		if info, err := r.Info(t.Context()); err == nil {
			worker, _ := strconv.Atoi(info["Pid"])
			return side{h, worker, func() { cmd.Process.Kill(); cmd.Wait(); reading.Close() }}
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("HAProxy does not start")
	return side{}
}

var wrkRequests = regexp.MustCompile(`(?m)^\s*([0-9]+) requests in`)

// cost is the CPU time of a request.
func (s side) cost(t *testing.T, url string, arguments ...string) time.Duration {
	t.Helper()
	before, err := measure.ProcessTime(s.worker)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("wrk", append([]string{"-t1", "-c20", "-d3s"}, append(arguments, url)...)...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	s.Start(cmd)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("wrk: %v: %s", err, &out)
	}
	after, err := measure.ProcessTime(s.worker)
	m := wrkRequests.FindStringSubmatch(out.String())
	if err != nil || m == nil || strings.Contains(out.String(), "Non-2xx") {
		t.Fatalf("%v: %s", err, &out)
	}
	n, _ := strconv.Atoi(m[1])
	return (after - before) / time.Duration(n)
}

// measuredSides are the rendered configuration, and files of testdata: one with the same features that
// was written by hand, and one without what protects.
var measuredSides = []string{"rendered", "hand", "plain"}

// What a request costs with configurations that were written by hand, as a part of what it costs with
// a rendered one: all are measured in each round, each of them first in turn.
func TestMeasureLayer7Rendered(t *testing.T) {
	h := haproxytest.New(t)
	h.Serve("s1", "127.0.1.1:8080")
	h.Serve("s2", "127.0.1.2:8080")
	base := t.TempDir()
	dirs := map[string]string{}
	for _, name := range measuredSides {
		dirs[name] = filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Join(dirs[name], "empty"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	pem := filepath.Join(base, "server.pem")
	if err := os.WriteFile(pem, []byte(haproxytest.Certificate(t, "shop.example")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range measuredSides[1:] {
		text, err := os.ReadFile("testdata/layer7-" + name + ".cfg")
		if err != nil {
			t.Fatal(err)
		}
		written := strings.NewReplacer("DIR/server.pem", pem, "DIR", dirs[name]).Replace(string(text))
		if err := os.WriteFile(filepath.Join(dirs[name], haproxy.ConfigFile), []byte(written), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	v, err := haproxy.Detect(t.Context(), "haproxy")
	if err != nil {
		t.Fatal(err)
	}
	r, err := haproxy.Render(measuredShop(pem), nil, haproxy.Options{Version: v, Directory: dirs["rendered"], Socket: filepath.Join(dirs["rendered"], "runtime.sock"), Chroot: filepath.Join(dirs["rendered"], "empty")})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Write(dirs["rendered"]); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name, url string
		arguments []string
	}{
		{"plain, kept connections", "http://127.0.0.1/", nil},
		{"plain, a connection for each request", "http://127.0.0.1/api", []string{"-H", "Connection: close"}},
		{"TLS, kept connections", "https://127.0.0.1/", nil},
	}
	ratios, costs := map[string][][]float64{}, map[string][][]float64{}
	for _, name := range measuredSides {
		ratios[name], costs[name] = make([][]float64, len(cases)), make([][]float64, len(cases))
	}
	for round := range *rounds {
		got := map[string][]time.Duration{}
		for i := range measuredSides {
			name := measuredSides[(i+round)%len(measuredSides)]
			s := launch(t, h, dirs[name])
			for _, c := range cases {
				got[name] = append(got[name], s.cost(t, c.url, c.arguments...))
			}
			s.stop()
		}
		for i := range cases {
			for _, name := range measuredSides {
				ratios[name][i] = append(ratios[name][i], float64(got[name][i])/float64(got["rendered"][i]))
				costs[name][i] = append(costs[name][i], float64(got[name][i])/1e3)
			}
		}
	}
	for i, c := range cases {
		fmt.Printf("%s: CPU of a request by the rendered configuration %s us\n", c.name, interval(costs["rendered"][i]))
		for _, name := range measuredSides[1:] {
			fmt.Printf("  %s: %s us; %s / rendered %s\n", name, interval(costs[name][i]), name, interval(ratios[name][i]))
		}
	}
}

// interval is a median with its interval of 95 %.
func interval(samples []float64) string {
	i := stats.MedianInterval(samples, 0.95)
	return fmt.Sprintf("%.3f (%.3f to %.3f)", stats.Summarize(samples).Median, i.Low, i.High)
}
