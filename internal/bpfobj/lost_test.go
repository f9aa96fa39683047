// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// piece is a stretch of a function's instructions: those of one entry of the line
// information.
type piece struct {
	function     string
	file         string
	line, column uint32
}

// pieces counts the pieces of a program's callbacks, and says what each piece's
// source is. Pieces that consist of unconditional jumps are left out on request: a
// jump that the verifier finds needless does nothing.
func pieces(all asm.Instructions, callbacks map[string]bool, jumps bool) (map[piece]int, map[piece]string) {
	counts, text := map[piece]int{}, map[piece]string{}
	var at piece
	counted := true
	for i := range all {
		ins := &all[i]
		if f := btf.FuncMetadata(ins); f != nil {
			at = piece{function: f.Name}
			counted = true // until the first line
		}
		if l, ok := ins.Source().(*btf.Line); ok && l != nil {
			at.file, at.line, at.column = l.FileName(), l.LineNumber(), l.LineColumn()
			text[at] = strings.TrimSpace(l.Line())
			counted = false
		}
		if !counted && callbacks[at.function] && (jumps || ins.OpCode.JumpOp() != asm.Ja) {
			counts[at]++
			counted = true
		}
	}
	return counts, text
}

// lost says which pieces of its callbacks a program has no longer that the verifier
// has taken: code that it found unreachable, rightly or not. Unlike the verifier's log
// this needs no time; a piece of which some instructions are left is not seen.
func lost(spec *ebpf.ProgramSpec, p *ebpf.Program) ([]string, error) {
	info, err := p.Info()
	if err != nil {
		return nil, err
	}
	left, err := info.Instructions()
	if err != nil {
		return nil, err
	}
	callbacks := callbacksOf(spec.Instructions)
	want, text := pieces(spec.Instructions, callbacks, false)
	got, _ := pieces(left, callbacks, true)
	if len(want) > 0 && len(got) == 0 {
		return nil, fmt.Errorf("the kernel tells no lines of the program")
	}
	var all []string
	for at, n := range want {
		if got[at] < n {
			all = append(all, fmt.Sprintf("%s, %s:%d:%d, %d of %d: %s", at.function, at.file, at.line, at.column, n-got[at], n, text[at]))
		}
	}
	return all, nil
}
