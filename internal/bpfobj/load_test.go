// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/rlimit"
)

// logTail is how many of the verifier's last steps a refusal shows: the end
// says why, and all of it may be a million instructions.
const logTail = 40

// eachProgram runs a test with each program of the data plane by itself.
func eachProgram(t *testing.T, test func(t *testing.T, name string, one *ebpf.CollectionSpec)) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads BPF programs")
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	spec, err := LoadLb()
	if err != nil {
		t.Fatal(err)
	}
	for name := range spec.Programs {
		t.Run(name, func(t *testing.T) { test(t, name, only(spec, name)) })
	}
}

// The kernel's verifier takes each program, leaves its callbacks whole, and says at
// what cost. Verifiers differ from release to release: this test is what to run on
// another kernel first.
func TestProgramsLoad(t *testing.T) {
	eachProgram(t, func(t *testing.T, name string, one *ebpf.CollectionSpec) {
		start := time.Now()
		c, err := ebpf.NewCollectionWithOptions(one, verbosely(ebpf.LogLevelStats))
		if err != nil {
			t.Fatal(explain(one, err))
		}
		defer c.Close()
		t.Logf("%s loaded in %.2f s\n%s", name, time.Since(start).Seconds(), c.Programs[name].VerifierLog)
		missing, err := lost(one.Programs[name], c.Programs[name])
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(missing)
		for _, piece := range missing {
			t.Errorf("the verifier took out: %s", piece)
		}
	})
}

// callbacksOf names the functions whose address is taken, except those that call a
// function which the kernel lacks: what needs that is rightly taken out.
func callbacksOf(all asm.Instructions) map[string]bool {
	names := map[string]bool{}
	for i := range all {
		if all[i].IsLoadOfFunctionPointer() {
			names[all[i].Reference()] = true
		}
	}
	function := ""
	for i := range all {
		if f := btf.FuncMetadata(&all[i]); f != nil {
			function = f.Name
		}
		if all[i].IsKfuncCall() && !kernelHas(all[i].Reference()) {
			delete(names, function)
		}
	}
	return names
}

// kernelHas reports whether programs can call a function of the running kernel.
func kernelHas(name string) bool {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return false
	}
	var f *btf.Func
	return kernel.TypeByName(name, &f) == nil
}

func verbosely(l ebpf.LogLevel) ebpf.CollectionOptions {
	return ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: l}}
}

// explain has the verifier say how it came to its refusal.
func explain(spec *ebpf.CollectionSpec, err error) error {
	c, again := ebpf.NewCollectionWithOptions(spec, verbosely(ebpf.LogLevelInstruction|ebpf.LogLevelStats))
	if again == nil {
		c.Close()
		return fmt.Errorf("%w; and then it was taken", err)
	}
	var refusal *ebpf.VerifierError
	if !errors.As(again, &refusal) {
		return again
	}
	// Lines of how it looked back for what a register held are no steps.
	steps := slices.DeleteFunc(refusal.Log, func(line string) bool {
		return strings.HasPrefix(line, "regs=") || strings.HasPrefix(line, "last_idx ") || strings.HasPrefix(line, "parent ")
	})
	end := steps[max(0, len(steps)-logTail):]
	return fmt.Errorf("%w\n%s", refusal.Cause, strings.Join(end, "\n"))
}

// only is the collection with one program, and small tables.
func only(spec *ebpf.CollectionSpec, program string) *ebpf.CollectionSpec {
	one := spec.Copy()
	for name := range one.Programs {
		if name != program {
			delete(one.Programs, name)
		}
	}
	for _, m := range one.Maps {
		m.MaxEntries = min(m.MaxEntries, 1024)
		m.Contents = slices.DeleteFunc(m.Contents, func(kv ebpf.MapKV) bool { return kv.Value != program })
	}
	return one
}

// A stale fingerprint would let a command take another version's tables for
// its own.
func TestFingerprint(t *testing.T) {
	if want := fmt.Sprintf("%.8x", sha256.Sum256(_LbBytes)); Fingerprint != want {
		t.Errorf("fingerprint %s, want %s: make generate", Fingerprint, want)
	}
}
