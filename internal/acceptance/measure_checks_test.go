// SPDX-License-Identifier: Apache-2.0

//go:build measure

package acceptance

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/lab/stats"
)

var rounds = flag.Int("rounds", 3, "rounds of measuring what checks cost")

// manyChecks is one case of what checks cost.
type manyChecks struct {
	name, check        string
	addresses, ports   int
	interval, duration time.Duration
}

// How late checks start, and what they cost: each case once a round.
func TestMeasureChecks(t *testing.T) {
	cases := []manyChecks{
		{"at rest, no checks", "", 100, 1, 0, 30 * time.Second},
		{"TCP checks of 100 addresses", "tcp: {}", 100, 10, 200 * time.Millisecond, 30 * time.Second},
		{"HTTP checks of 100 addresses", "http: {}", 100, 10, 200 * time.Millisecond, 30 * time.Second},
		{"10000 servers each 30 s by TCP", "tcp: {}", 10000, 1, 30 * time.Second, 60 * time.Second},
	}
	type figures struct{ rate, p50, p99, cpu, memory []float64 }
	all := make([]figures, len(cases))
	for round := range *rounds {
		for i, one := range cases {
			t.Run(fmt.Sprintf("%s, round %d", one.name, round+1), func(t *testing.T) {
				f := &all[i]
				rate, p50, p99, cpu, memory := one.measure(t)
				f.rate, f.p50, f.p99, f.cpu, f.memory = append(f.rate, rate), append(f.p50, p50), append(f.p99, p99), append(f.cpu, cpu), append(f.memory, memory)
				t.Logf("%.0f checks/s, start delay p50 %.2f ms, p99 %.2f ms; CPU %.2f %% of a core, %.0f MB", rate, p50, p99, cpu, memory)
			})
		}
	}
	for i, one := range cases {
		f := all[i]
		row := checked{one.name, "", stats.Summarize(f.rate), stats.Summarize(f.p50), stats.Summarize(f.p99), stats.Summarize(f.cpu), stats.Summarize(f.memory)}
		t.Logf("%+v", row)
		note(t, func(all *measured, commit string) {
			row.Commit = commit
			all.Checks = put(all.Checks, row, func(x checked) bool { return x.Name == row.Name })
		})
	}
}

// measure starts a daemon and returns checks a second, their delay [ms], CPU [% of a core]
// and resident memory [MB].
func (one manyChecks) measure(t *testing.T) (rate, p50, p99, cpu, memory float64) {
	k := newKeeper(t, 1, "services: []\n")
	k.end(syscall.SIGTERM)
	k.do("detach")
	k.extra = ", max_servers: 16384"
	one.serve(k)
	k.start()
	// One core for the daemon, the other for the servers.
	if out, err := exec.Command("taskset", "-acp", "0", strconv.Itoa(k.cmd.Process.Pid)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	time.Sleep(5*time.Second + one.interval) // all have been checked
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
	if up != servers || servers != one.addresses*one.ports {
		t.Errorf("%d of %d servers are up", up, servers)
	}
	return float64(s.Checks.Made-before.Checks.Made) / passed.Seconds(), s.Checks.DelayP50MS, s.Checks.DelayP99MS,
		100 * (cpu1 - cpu0).Seconds() / passed.Seconds(), float64(rss) / 1e6
}

// serve writes the configuration, and starts what answers.
func (one manyChecks) serve(k *keeper) {
	var b, listen strings.Builder
	if one.check != "" {
		fmt.Fprintf(&b, "checks:\n  one: {%s, interval: %d ms, timeout: %d ms}\n", one.check, one.interval.Milliseconds(), min(one.interval, time.Second).Milliseconds())
	}
	b.WriteString("services:\n")
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
