// SPDX-License-Identifier: Apache-2.0

//go:build walk

package bpfobj

import (
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// The verifier walks every instruction of the callbacks: it takes out what it
// does not. Before Linux 6.7 it walks a callback of bpf_loop as if for the
// first time only, and before 6.8 it may walk it for one of several callers only,
// so that the code for other times and callers is silently lost.
func TestFunctionsAreWhole(t *testing.T) {
	eachProgram(t, func(t *testing.T, name string, one *ebpf.CollectionSpec) {
		if name == "lb_server" {
			return // its callbacks are lb_client's, and the log is long
		}
		c, err := ebpf.NewCollectionWithOptions(one, verbosely(ebpf.LogLevelInstruction))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		walked := walkedIn(c.Programs[name].VerifierLog)
		if len(walked) == 0 {
			t.Fatal("the verifier's log names no instruction")
		}
		callbacks := callbacksOf(one.Programs[name].Instructions)
		// The fast path alone has none.
		if len(callbacks) == 0 && !strings.HasPrefix(name, "lb_xdp_") {
			t.Fatal("the program has no callbacks")
		}
		function, line := "", ""
		for it := one.Programs[name].Instructions.Iterate(); it.Next(); {
			if symbol := it.Ins.Symbol(); symbol != "" {
				function = symbol
			}
			if source := it.Ins.Source(); source != nil {
				line = strings.TrimSpace(source.String())
			}
			// A jump that another knowledge makes needless does nothing.
			needless := it.Ins.OpCode.JumpOp() == asm.Ja
			if callbacks[function] && !walked[int(it.Offset)] && !needless {
				t.Errorf("%s: instruction %d is never reached: %v, of: %s", function, it.Offset, it.Ins, line)
			}
		}
	})
}

// walkedIn reads the numbers of instructions from a log's lines such as
// "12: (bf) r6 = r1".
func walkedIn(log string) map[int]bool {
	walked := map[int]bool{}
	for line := range strings.Lines(log) {
		number, _, _ := strings.Cut(line, ": (")
		if n, err := strconv.Atoi(number); err == nil {
			walked[n] = true
		}
	}
	return walked
}
