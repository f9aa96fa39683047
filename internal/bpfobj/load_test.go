// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
)

// logTail is how many of the verifier's last steps a refusal shows: the end
// says why, and all of it may be a million instructions.
const logTail = 40

// The kernel's verifier takes each program by itself, and says at what cost.
// Verifiers differ from release to release: this test is what to run on
// another kernel first.
func TestProgramsLoad(t *testing.T) {
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
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			c, err := ebpf.NewCollectionWithOptions(only(spec, name), verbosely(ebpf.LogLevelStats))
			if err != nil {
				t.Fatal(explain(only(spec, name), err))
			}
			defer c.Close()
			t.Logf("loaded in %.2f s\n%s", time.Since(start).Seconds(), c.Programs[name].VerifierLog)
		})
	}
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
	}
	return one
}
