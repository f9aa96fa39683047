// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// dependencies are all packages of this module that a package is made of,
// itself included.
func dependencies(t *testing.T, of ...string) []string {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list", "-deps"}, of...)...).Output()
	if err != nil {
		t.Fatalf("go list -deps %v: %v", of, err)
	}
	var own []string
	for line := range strings.Lines(string(out)) {
		if p := strings.TrimSpace(line); strings.HasPrefix(p, "imbang/") {
			own = append(own, p)
		}
	}
	if len(own) < len(of) {
		t.Fatalf("go list -deps %v names only %q", of, own)
	}
	return own
}

// The director's program contains nothing of the lab, and the three parts
// depend on each other in one direction alone.
func TestDependencies(t *testing.T) {
	for _, c := range []struct {
		of        []string
		forbidden []string
	}{
		{[]string{"imbang/cmd/imbang"}, []string{"imbang/internal/lab", "imbang/studies", "imbang/internal/director/testrun", "imbang/internal/bpfobj/lbtest"}},
		{[]string{"imbang/internal/director"}, []string{"imbang/internal/daemon", "imbang/internal/lab", "imbang/internal/director/testrun"}},
		{[]string{"imbang/internal/daemon/..."}, []string{"imbang/internal/lab", "imbang/internal/director/testrun"}},
		{[]string{"imbang/internal/lab/..."}, []string{"imbang/internal/daemon"}},
	} {
		for _, p := range dependencies(t, c.of...) {
			for _, f := range c.forbidden {
				if p == f || strings.HasPrefix(p, f+"/") {
					t.Errorf("%s contains %s", strings.Join(c.of, " "), p)
				}
			}
		}
	}
}

// The data plane is loaded and run by the director, and by what is not in its program.
func TestImportersOfBPF(t *testing.T) {
	allowed := []string{
		"imbang/internal/bpfobj",
		"imbang/internal/bpfobj/lbstages",
		"imbang/internal/bpfobj/lbtest",
		"imbang/internal/director",
		"imbang/internal/director/layout", // types alone
		"imbang/internal/director/testrun",
		"imbang/internal/doctor",      // iterates over sockets, for what /proc does not have
		"imbang/internal/lab/measure", // turns the kernel's run-time statistics of programs on
		"imbang/internal/lab/probe",
		"imbang/internal/reference", // names of types alone, for the documentation
		"imbang/internal/testenv",   // of tests alone
	}
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "imbang/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var importers []string
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if slices.ContainsFunc(fields[1:], func(p string) bool { return strings.HasPrefix(p, "github.com/cilium/ebpf") }) {
			importers = append(importers, fields[0])
		}
	}
	if !slices.Equal(importers, allowed) {
		t.Errorf("%q import cilium/ebpf, want %q", importers, allowed)
	}
}
