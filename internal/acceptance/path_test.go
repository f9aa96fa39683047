// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/bench"
	"imbang/internal/lab/topology"
)

// The comparison of whole paths with short samples: every competitor has every
// measure, but for plain forwarding the CPU time of balancing; all three servers
// take part, nothing is lost, and nothing is left behind.
func TestBenchPath(t *testing.T) {
	needRoot(t)
	out := must(t, nil, "", "bench", "path", "--rounds", "2", "--sittings", "2", "--seconds", "0.2", "--rate", "1000", "--megabytes", "2", "--output", "json")
	var r bench.PathResult
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	for _, m := range r.Missing {
		if !strings.HasPrefix(m, "nftables-flowtable: not available") { // many kernels have none
			t.Fatal(m)
		}
	}
	if n := len(bench.PathCompetitors()) - len(r.Missing); len(r.Requests) != n || len(r.Rows) != 11*n+2*(n-1) || len(r.Targets) != 10 || r.Rate != 1000 || r.Rounds != 2 || r.Sittings != 2 {
		t.Fatalf("%+v", r)
	}
	for _, row := range r.Rows {
		if strings.HasPrefix(row.Measure, "CPU of balancing") { // a difference, so it may be negative
			if row.Value.N != 2 || row.Competitor == "direct" || row.Over != nil {
				t.Errorf("%+v", row)
			}
			continue
		}
		if row.Value.N != 2 || row.Value.Median <= 0 || (row.Competitor != "direct") != (row.Over["direct"].N == 2) {
			t.Errorf("%+v", row)
		}
	}
	for _, l := range r.Requests {
		if l.Lost > 0 || l.Sent == 0 || len(l.Shares) != 3 {
			t.Errorf("%+v", l)
		}
	}
	if left := orphans(t); len(left) > 0 {
		t.Errorf("left behind: %s", left)
	}
	for _, args := range [][]string{{"--rounds", "0"}, {"--sittings", "0"}, {"--competitors", "ipvs"}, {"--seconds", "0.01"}} {
		if got := imbang(t, nil, "", append([]string{"bench", "path"}, args...)...); got.status != 2 {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

// Ctrl-C ends the suite: what is finished of a part is kept, and nothing is
// left behind.
func TestInterruptedSuite(t *testing.T) {
	needRoot(t)
	history := t.TempDir() + "/history.jsonl"
	cmd := exec.Command(executable, "bench", "--quick", "--parts", "path,changes", "--history", history)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 3 || !strings.Contains(stderr.String(), "imbang-lab: interrupted in part") {
		t.Errorf("status %d, said %s", code, stderr.String())
	}
	if left := orphans(t); len(left) > 0 {
		t.Errorf("left behind: %s", left)
	}
}

// orphans lists namespaces of benchmarks whose processes are gone: others may
// be at work.
func orphans(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir("/run/netns")
	if err != nil {
		return nil // no namespace was ever made
	}
	for _, e := range entries {
		if host.Orphaned(topology.Prefix, e.Name()) || host.Orphaned("imbang-bench", e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names
}
