// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/check"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/testenv"
)

// A tracked script that is removed and installed again, as by an upgrade of its package, moves
// nothing, and is reported once.
func TestTrackedScriptReplaced(t *testing.T) { testenv.Patient(t, testTrackedScriptReplaced) }

func testTrackedScriptReplaced(t testing.TB) {
	path := filepath.Join(t.TempDir(), "watch")
	// A link to a program, not a file for the shell: that would have to find the file once more after it began.
	install := func(program string) {
		t.Helper()
		program, err := exec.LookPath(program)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(program, path+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	install("true")
	loop, unmade := make(chan func(), 1), []string{}
	tracker := newTracker(func(f func()) { loop <- f }, func(string) {}, func(_, why string) { unmade = append(unmade, why) })
	results := func(n int) check.Verdict {
		for range n {
			(<-loop)()
		}
		return tracker.verdict("watch")
	}
	tracker.set([]setup.Script{{Name: "watch", Command: []string{path}, Interval: 10 * time.Millisecond, Timeout: 10 * time.Second, Rise: 1, Fall: 1}}, nil)
	defer func() {
		go func() {
			for range loop { //nolint:revive // what waits to be posted
			}
		}()
		tracker.close()
		close(loop)
	}()
	if got := results(2); got != check.Up || len(unmade) != 0 {
		t.Errorf("at first %s, %q", got, unmade)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := results(5); got != check.Up || len(unmade) != 1 || !strings.HasSuffix(unmade[0], path+" does not exist: install it, or correct the path") {
		t.Errorf("removed: %s, %q", got, unmade)
	}
	install("false")
	if got := results(4); got != check.Down || len(unmade) != 2 || unmade[1] != "" {
		t.Errorf("installed again: %s, %q", got, unmade)
	}
}

// A group that waits for the first result of a script says why there is none.
func TestTrackedScriptMissing(t *testing.T) { testenv.Patient(t, testTrackedScriptMissing) }

func testTrackedScriptMissing(t testing.TB) {
	link := newNetwork(t)
	path := filepath.Join(t.TempDir(), "watch")
	group := web(100, virtual4)
	group.Scripts = []string{"watch"}
	a := newNode(t, link.host(1), group)
	a.wanted.Scripts = []setup.Script{{Name: "watch", Command: []string{path}, Interval: 10 * time.Millisecond, Timeout: 10 * time.Second, Rise: 1, Fall: 1}}
	a.start()
	want := "script watch has no result yet: not started: no such file or directory: " + path + " does not exist: install it, or correct the path"
	a.await("the reason", func() bool { return slices.Equal(a.group().Faults, []string{want}) })
	if err := os.WriteFile(path+".new", []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	a.await("its end", func() bool { return len(a.group().Faults) == 0 })
}
