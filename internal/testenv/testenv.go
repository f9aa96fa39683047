// SPDX-License-Identifier: Apache-2.0

// Package testenv is what tests share: a reason to skip, network namespaces
// that go away with the test, packets, and the measures of time that other work
// of the machine does not change (ThreadTime) or that allow for it (WatchStalls).
//
// Only tests import it. It knows nothing of the director; a packet is built
// and checked here by the standards alone, so that it can judge the data
// plane.
package testenv

import (
	"os"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"

	"imbang/internal/host"
)

// Prefix begins the names of all namespaces made here.
const Prefix = "imbang-test"

// Root skips the test where it cannot run, naming the reason: without root,
// or on a kernel without BPF classifiers.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads BPF programs and makes network namespaces")
	}
	if err := features.HaveProgramType(ebpf.SchedCLS); err != nil {
		t.Skipf("needs BPF classifiers (CONFIG_NET_CLS_BPF): %v", err)
	}
}

// sweep removes what earlier runs left that were killed.
var sweep = sync.OnceValue(func() error {
	_, err := host.Sweep(Prefix)
	return err
})

// Namespace makes a network namespace under a name of its own and removes it
// when the test is over, whatever its outcome.
func Namespace(t testing.TB, role string) *host.Namespace {
	t.Helper()
	Root(t)
	if err := sweep(); err != nil {
		t.Fatal(err)
	}
	run, err := host.NewRun(Prefix)
	if err != nil {
		t.Fatal(err)
	}
	ns, err := host.NewNamespace(run.Name(role))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	return ns
}
