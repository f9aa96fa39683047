// SPDX-License-Identifier: Apache-2.0

//go:build measure

package acceptance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/daemon/events"
	"imbang/internal/lab/load"
	"imbang/internal/lab/topology"
)

// Measures of the daemon: what they find is printed, and written down in
// docs/how-to/run.md. `make measure-daemon` runs them.

var trials = flag.Int("trials", 50, "trials of each kind of failure")

// How long a dead server keeps its place, and how many requests that costs.
func TestMeasureDetection(t *testing.T) {
	for _, one := range []struct{ name, check, fault string }{
		{"killed, TCP check", "tcp: {}", "kill"},
		{"killed, HTTP check", "http: {}", "kill"},
		{"stopped, HTTP check", "http: {}", "stop"},
	} {
		t.Run(one.name, func(t *testing.T) { measureDetection(t, one.check, one.fault) })
	}
}

func measureDetection(t *testing.T, kind, fault string) {
	k := newKeeper(t, 3, strings.Replace(checkEvery, "http: {}", kind, 1)+threeServers)
	all := "a up/1, b up/1, c up/1"
	k.await("all servers", 5*time.Second, func() bool { return k.states() == all })
	const rate = 200
	const each = 2500 * time.Millisecond // of a trial
	done := make(chan *load.Result)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		r, err := load.Run(ctx, load.Plan{
			Target: netip.AddrPortFrom(k.Virtual(topology.IPv4), 80), Timeout: 2 * time.Second,
			Clients: []load.Client{{Namespace: k.Clients[0].Namespace.Path(), Sources: k.Clients[0].Addresses[topology.IPv4]}},
			Rate:    rate, Duration: time.Duration(*trials)*each + 5*time.Second,
		}, nil)
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		done <- r
	}()
	var took []time.Duration
	for i := range *trials {
		next := time.Now().Add(each)
		time.Sleep(time.Duration(i%20) * 10 * time.Millisecond) // at any time of the interval
		pids, err := k.nginx[1].PIDs()
		if err != nil {
			t.Fatal(err)
		}
		at := time.Now()
		if fault == "kill" {
			for _, pid := range pids {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		} else {
			for _, pid := range pids {
				_ = syscall.Kill(pid, syscall.SIGSTOP)
			}
		}
		k.await("down", 5*time.Second, func() bool { return strings.Contains(k.states(), "b down/0") })
		took = append(took, k.downSince(at))
		if fault == "kill" {
			k.kill(1)
			k.revive(1)
		} else {
			for _, pid := range pids {
				_ = syscall.Kill(pid, syscall.SIGCONT)
			}
		}
		k.await("up", 5*time.Second, func() bool { return k.states() == all })
		time.Sleep(time.Until(next))
	}
	cancel()
	r := <-done
	slices.Sort(took)
	at := func(q float64) time.Duration { return took[int(q*float64(len(took)-1))].Round(time.Millisecond) }
	t.Logf("%d trials: least %s, median %s, 90 %% %s, most %s; %d requests at %d/s, lost %d: %.1f a trial (%+v)",
		len(took), took[0].Round(time.Millisecond), at(0.5), at(0.9), at(1), r.Replies, rate, r.Loss.Total(), float64(r.Loss.Total())/float64(len(took)), r.Loss)
	late := slices.IndexFunc(took, func(d time.Duration) bool { return d > 700*time.Millisecond })
	if late >= 0 {
		t.Logf("%d trials above interval x fall + timeout, 700 ms", len(took)-late)
	}
}

// downSince is the time from a moment until the last server went down.
func (k *keeper) downSince(at time.Time) time.Duration {
	k.t.Helper()
	var down time.Time
	err := k.api().Events(k.t.Context(), 20, false, func(e events.Event) error {
		if e.Kind == events.ServerDown {
			down = e.Time
		}
		return nil
	})
	if err != nil || down.Before(at) {
		k.t.Fatalf("no event of a server that went down after %s: %v", at, err)
	}
	return down.Sub(at)
}

// usage is what a process has used: CPU time and its memory now [bytes].
func usage(t *testing.T, pid int) (cpu time.Duration, rss int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	pages, _ := strconv.Atoi(f[21])
	return time.Duration(user+system) * 10 * time.Millisecond, pages * os.Getpagesize() // USER_HZ is 100
}

// How late checks start, and what they cost.
func TestMeasureChecks(t *testing.T) {
	for _, one := range []struct {
		name, check        string
		addresses, ports   int
		interval, duration time.Duration
	}{
		{"at rest, no checks", "", 100, 1, 0, 60 * time.Second},
		{"5000 TCP checks a second of 100 addresses", "tcp: {}", 100, 10, 200 * time.Millisecond, 30 * time.Second},
		{"5000 HTTP checks a second of 100 addresses", "http: {}", 100, 10, 200 * time.Millisecond, 30 * time.Second},
		{"10000 servers each 30 s by TCP", "tcp: {}", 10000, 1, 30 * time.Second, 90 * time.Second},
	} {
		t.Run(one.name, func(t *testing.T) {
			k := newKeeper(t, 1, "services: []\n")
			k.end(syscall.SIGTERM)
			k.do("detach")
			k.extra = ", max_servers: 16384"
			var b strings.Builder
			if one.check != "" {
				fmt.Fprintf(&b, "checks:\n  one: {%s, interval: %d ms, timeout: %d ms}\n", one.check, one.interval.Milliseconds(), min(one.interval, time.Second).Milliseconds())
			}
			b.WriteString("services:\n")
			var listen strings.Builder
			all := k.many(one.addresses)
			for p := range one.ports {
				port := 80
				if one.ports > 1 {
					port = 8000 + p
					fmt.Fprintf(&listen, "listen %d backlog=8192;", port)
				}
				fmt.Fprintf(&b, "  - name: s%d\n    virtual: VIP:%d\n    scheduler: rr\n", p, port)
				if one.check != "" {
					b.WriteString("    checks: [one]\n")
				}
				b.WriteString("    servers:\n")
				for _, a := range all {
					fmt.Fprintf(&b, "      - {address: %s}\n", a)
				}
			}
			if one.ports > 1 {
				k.listen(listen.String())
			}
			k.configure(b.String())
			k.start()
			// One core for the daemon, the other for the servers.
			if out, err := exec.Command("taskset", "-acp", "0", strconv.Itoa(k.cmd.Process.Pid)).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			time.Sleep(5 * time.Second)
			before, err := k.api().Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			cpu0, _ := usage(t, k.cmd.Process.Pid)
			begin := time.Now()
			time.Sleep(one.duration)
			cpu1, rss := usage(t, k.cmd.Process.Pid)
			passed := time.Since(begin)
			s, err := k.api().Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			up, servers := 0, 0
			for _, svc := range s.Services {
				for _, one := range svc.Servers {
					servers++
					if one.State == "up" || one.State == "unchecked" {
						up++
					}
				}
			}
			t.Logf("%.0f checks/s, start delay p50 %.2f ms, p99 %.2f ms; CPU %.2f %% of a core, %d MB; %d of %d servers up",
				float64(s.Checks.Made-before.Checks.Made)/passed.Seconds(), s.Checks.DelayP50MS, s.Checks.DelayP99MS,
				100*(cpu1-cpu0).Seconds()/passed.Seconds(), rss>>20, up, servers)
			if up != servers {
				t.Errorf("%d of %d servers are up", up, servers)
			}
		})
	}
}

// listen starts another nginx on the first real server.
func (k *keeper) listen(directives string) {
	k.t.Helper()
	config := filepath.Join(k.dir, "nginx.conf")
	text := fmt.Sprintf("daemon off; pid %s/nginx.pid; error_log /dev/null; worker_rlimit_nofile 65536; events {worker_connections 32768;}\nhttp { access_log off; server { %s location / { return 200 ok; } } }\n", k.dir, directives)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		k.t.Fatal(err)
	}
	cmd := exec.Command("taskset", "-c", "1", "nginx", "-c", config)
	if err := k.Servers[0].Namespace.Start(cmd); err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() })
}
