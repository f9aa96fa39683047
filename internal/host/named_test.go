// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
)

// A named run outlives its process: it is found and removed by its name alone,
// and no sweep removes it.
func TestNamedRun(t *testing.T) {
	needNamespaces(t)
	r := NamedRun(testPrefix, fmt.Sprintf("n%d", os.Getpid()))
	newNamespace(t, r.Name("a")).Release()
	newNamespace(t, NamedRun(testPrefix, r.String()[len(testPrefix)+1:]+"x").Name("a")) // of another run
	if swept, err := Sweep(testPrefix); err != nil || slices.Contains(swept, r.Name("a")) {
		t.Errorf("a sweep removed %v, %v", swept, err)
	}
	if got, err := NamespacesOf(r); err != nil || !slices.Equal(got, []string{r.Name("a")}) {
		t.Errorf("namespaces of %s: %v, %v", r, got, err)
	}

	n, err := OpenNamespace(r.Name("a"))
	must(t, err)
	cmd := exec.Command("sleep", "60")
	must(t, n.Start(cmd))
	n.Release()
	if err := n.Do(func() error { return nil }); err == nil {
		t.Error("entered a released namespace")
	}
	if got := PIDsInside(r.Name("a")); !slices.Equal(got, []int{cmd.Process.Pid}) {
		t.Errorf("processes inside: %v, want %d", got, cmd.Process.Pid)
	}
	KillInside(r.Name("a"))
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the process ended with %v, want signal: killed", err)
	}
	must(t, RemoveNamespace(r.Name("a")), RemoveNamespace(r.Name("a")))
	if _, err := OpenNamespace(r.Name("a")); err == nil {
		t.Error("opened a removed namespace")
	}
}

// A process that is killed between making the file and binding the namespace
// leaves a file that is no namespace.
func TestRemoveUnboundNamespace(t *testing.T) {
	r := needNamespaces(t)
	newNamespace(t, r.Name("a")) // makes the directory
	path := netnsDir + "/" + r.Name("b")
	must(t, os.WriteFile(path, nil, 0o444))
	t.Cleanup(func() { os.Remove(path) })
	if _, err := OpenNamespace(r.Name("b")); err == nil {
		t.Error("opened a file that is no namespace")
	}
	must(t, RemoveNamespace(r.Name("b")))
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", path, err)
	}
}
