// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/topology"
	"imbang/internal/testenv"
)

// A process that is frozen does nothing, and goes on afterwards; the control group goes.
func TestFreezer(t *testing.T) {
	testenv.Root(t)
	if _, _, err := freezerMount(); err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "count")
	cmd := exec.Command("sh", "-c", "while sleep 0.005; do echo >> "+path+"; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	run, err := host.NewRun(topology.Prefix)
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFreezer(run.Name("freezer"), func() []int { return []int{cmd.Process.Pid} })
	if err != nil {
		t.Fatal(err)
	}
	size := func() int64 {
		s, err := os.Stat(path)
		if err != nil {
			return 0
		}
		return s.Size()
	}
	grows := func() bool {
		for deadline, was := time.Now().Add(time.Minute), size(); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			if size() > was {
				return true
			}
		}
		return false
	}
	if !grows() {
		t.Error("it does not run at first")
	}
	if err := f.set(true); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); !f.isFrozen(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is not frozen")
		}
	}
	was := size()
	time.Sleep(100 * time.Millisecond)
	if size() != was {
		t.Error("it runs while it is frozen")
	}
	if err := f.set(false); err != nil {
		t.Fatal(err)
	}
	if !grows() {
		t.Error("it does not run afterwards")
	}
	if err := f.close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(f.dir); !os.IsNotExist(err) {
		t.Errorf("the control group is there: %v", err)
	}
}
