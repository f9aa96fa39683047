// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/topology"
)

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

// orphans lists namespaces of benchmarks whose processes are gone: others may be at work, and tests
// that kill one sweep soon.
func orphans(t *testing.T) (names []string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if names = orphansNow(); len(names) == 0 || time.Now().After(end) {
			return names
		}
	}
}

func orphansNow() (names []string) {
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
