// SPDX-License-Identifier: Apache-2.0

//go:build peer

package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"imbang/internal/host"
)

const prefix = "imbang-guest"

// namespace is for a guest, whose name comes with it.
func namespace(t *testing.T) (ns *host.Namespace, name string) {
	t.Helper()
	run, err := host.NewRun(prefix)
	if err != nil {
		t.Fatal(err)
	}
	if ns, err = host.NewNamespace(run.Name("br")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	return ns, run.Name("guest")
}

func TestGuest(t *testing.T) {
	ns, name := namespace(t)
	lines := make(chan string, 1000)
	g, err := Boot(t.Context(), ns, Spec{Name: name, Modules: []string{"ip_vs_rr"}, Lines: func(line string) { lines <- line }})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Kill()
	if status, output, err := g.Do(t.Context(), "echo out; echo err >&2; exit 3"); status != 3 || output != "out\nerr\n" || err != nil {
		t.Errorf("%d, %q, %v", status, output, err)
	}
	if _, err := g.Must(t.Context(), "false"); err == nil {
		t.Error("a script that fails does not")
	}
	if _, err := g.Must(t.Context(), "echo 2: ext0 inet 10.20.0.1/32 >/dev/console"); err != nil {
		t.Error(err)
	}
	for deadline := time.After(5 * time.Second); ; {
		select {
		case line := <-lines:
			if line != "2: ext0 inet 10.20.0.1/32" {
				continue // the kernel's
			}
		case <-deadline:
			t.Error("a line of the console does not come")
		}
		break
	}
	if err := os.WriteFile(g.File("told"), []byte("by the host"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := g.Must(t.Context(), "cat /tmp/host/told"); out != "by the host" {
		t.Error(out, err)
	}
	pids := g.PIDs()
	if len(pids) < 2 || pids[0] != g.cmd.Process.Pid {
		t.Errorf("processes %v", pids)
	}
	g.Kill()
	for _, pid := range pids {
		if cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && strings.Contains(string(cmdline), name) {
			t.Errorf("process %d is left", pid)
		}
	}
	if _, err := os.Stat(g.dir); err == nil || g.PIDs() != nil {
		t.Error("something is left", err)
	}
	if _, _, err := g.Do(t.Context(), "true"); err == nil {
		t.Error("a guest that is off runs a script")
	}
}

func TestGuestDoesNotComeUp(t *testing.T) {
	ns, name := namespace(t)
	g, err := Boot(t.Context(), ns, Spec{Name: name, Modules: []string{"no_such_module"}})
	if err == nil {
		g.Kill()
		t.Fatal("it comes up without a module")
	}
	if text := err.Error(); strings.Contains(text, "\n") || !strings.Contains(text, "LD_PRELOAD") || !strings.Contains(text, "module") {
		t.Errorf("%s", text)
	}
	if _, err := os.Stat(filepath.Join(os.TempDir(), name)); err == nil {
		t.Error("its directory is left")
	}
}
