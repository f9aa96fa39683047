// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/lab/arrivals"
)

// limitEnv carries a target to the test binary run again with fewer
// descriptors: lowering a hard limit cannot be undone in this process.
const limitEnv = "IMBANG_LOAD_TEST_LIMITED"

func TestMain(m *testing.M) {
	if target := os.Getenv(limitEnv); target != "" {
		os.Exit(limited(target))
	}
	os.Exit(m.Run())
}

// limited runs with a soft limit of 32 and a hard one of 64 descriptors and
// prints the result.
func limited(target string) int {
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 32, Max: 64}); err != nil {
		panic(err)
	}
	r, err := Run(context.Background(), Plan{
		Target: netip.MustParseAddrPort(target), Rate: 2000, Connections: 500, Timeout: 800 * time.Millisecond, Grace: time.Minute,
	}, nil)
	if err != nil {
		panic(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		panic(err)
	}
	return 0
}

func TestDescriptorLimit(t *testing.T) {
	target := serve(t, "127.0.0.1:0", silent)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), limitEnv+"="+target.String())
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var r Result
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	checkAccount(t, &r)
	g := r.Generator
	if g.DescriptorLimit != 64 {
		t.Errorf("limit %d, want the hard one, 64", g.DescriptorLimit)
	}
	if lost := r.Loss.Client.Descriptors; lost < 300 || lost+r.Loss.Timeout != 500 || r.Issued != r.Loss.Timeout {
		t.Errorf("%d issued, loss %+v", r.Issued, r.Loss)
	}
	if g.MaxOpen < 40 || g.MaxOpen >= 64 {
		t.Errorf("%d open at most, want nearly 64", g.MaxOpen)
	}
	if !g.Behind || !strings.Contains(g.Reason, "descriptor limit 64") {
		t.Errorf("behind %v: %s", g.Behind, g.Reason)
	}
	if len(g.Warnings) != 1 || !strings.HasPrefix(g.Warnings[0], "descriptors: unanswered connections could reach 500 ") {
		t.Errorf("warnings %q", g.Warnings)
	}
}

func TestForesee(t *testing.T) {
	two := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}
	for _, tc := range []struct {
		name  string
		p     Plan
		ports []int
		want  []string // beginnings
	}{
		{"enough", Plan{Rate: 2000, Duration: time.Minute, Timeout: 5 * time.Second}, []int{28232}, nil},
		{"few connections", Plan{Rate: 14000, Connections: 15000, Timeout: 5 * time.Second}, []int{28232}, nil},
		{"descriptors", Plan{Rate: 14000, Connections: 20000, Timeout: 5 * time.Second}, []int{28232},
			[]string{"descriptors: unanswered connections could reach 20000 (rate x timeout), the limit of 20000 leaves 19990"}},
		{"both", Plan{Rate: 14000, Duration: time.Minute, Timeout: 5 * time.Second}, []int{28232},
			[]string{"descriptors: unanswered connections could reach 70000", "ports: client 0: "}},
		{"more sources", Plan{Rate: 3000, Duration: time.Minute, Timeout: 5 * time.Second,
			Clients: []Client{{Sources: two}}}, []int{10000}, nil},
		{"users", Plan{Concurrency: 30000, Connections: 1e6}, []int{0}, []string{"descriptors: unanswered connections could reach 30000"}},
		{"kept", Plan{Rate: 10, Duration: time.Minute, RequestsPerConnection: Unlimited, Targets: make([]netip.AddrPort, 20000)},
			[]int{0}, []string{"descriptors: kept connections could reach 20000"}},
		{"on and off", Plan{Rate: 3000, Duration: time.Minute, Timeout: 5 * time.Second, Shape: arrivals.Shape{On: time.Second, Off: 3 * time.Second}},
			[]int{0}, []string{"descriptors: unanswered connections could reach 24000"}},
		{"ports unknown", Plan{Rate: 3000, Duration: time.Minute, Timeout: 5 * time.Second}, []int{0}, nil},
	} {
		got := foresee(tc.p.withDefaults(), 20000, 10, tc.ports)
		if len(got) != len(tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
			continue
		}
		for i := range got {
			if !strings.HasPrefix(got[i], tc.want[i]) {
				t.Errorf("%s: %q, want %q", tc.name, got[i], tc.want[i])
			}
		}
	}
}

func TestJudge(t *testing.T) {
	for _, tc := range []struct {
		name string
		r    Result
		want string // "" for on time
	}{
		{"on time", Result{OfferedRate: 1000, IssuedRate: 995}, ""},
		{"busy but on time", Result{OfferedRate: 1000, IssuedRate: 1000, Generator: Generator{BusyShare: 0.97}}, ""},
		{"slow", Result{OfferedRate: 1000, IssuedRate: 900, Generator: Generator{BusyShare: 0.97}},
			"issued 900 of 1000 requests/s: CPU: a client's thread ran 97 % "},
		{"starved", Result{OfferedRate: 1000, IssuedRate: 1000,
			Generator: Generator{BusyShare: 0.4, WaitShare: 0.3, Lateness: Latency{P99MS: 20}}},
			"1 % of the starts were over 20.0 ms late: CPU: a client's thread ran 40 % of the time and waited 30 %"},
		{"descriptors", Result{OfferedRate: 1000, IssuedRate: 500, Loss: Loss{Client: ClientLoss{Descriptors: 50}},
			Generator: Generator{DescriptorLimit: 64}},
			"issued 500 of 1000 requests/s: descriptor limit 64 (50 connections not opened)"},
		{"stopped", Result{OfferedRate: 1000, IssuedRate: 500}, "issued 500 of 1000 requests/s: no limit found"},
		{"users wait for the server", Result{Loop: closedLoop, IssuedRate: 900, Generator: Generator{BusyShare: 0.5}}, ""},
		{"users wait for the client", Result{Loop: closedLoop, IssuedRate: 900, Generator: Generator{BusyShare: 0.97}},
			"900 requests/s may be all it can send: CPU: a client's thread ran 97 % "},
	} {
		tc.r.Judge()
		g := tc.r.Generator
		if g.Behind != (tc.want != "") || !strings.HasPrefix(g.Reason, tc.want) {
			t.Errorf("%s: behind %v: %s", tc.name, g.Behind, g.Reason)
		}
	}
}
