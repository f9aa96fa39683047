// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
)

// logTail is how many of the verifier's last lines a refusal shows: the end
// says why, and all of it may be a million instructions.
const logTail = 80

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
			c, err := ebpf.NewCollectionWithOptions(only(spec, name), ebpf.CollectionOptions{
				Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats},
			})
			var refusal *ebpf.VerifierError
			if errors.As(err, &refusal) {
				end := refusal.Log[max(0, len(refusal.Log)-logTail):]
				t.Fatalf("%v\n%s", err, strings.Join(end, "\n"))
			}
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			t.Logf("loaded in %.2f s\n%s", time.Since(start).Seconds(), c.Programs[name].VerifierLog)
		})
	}
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
