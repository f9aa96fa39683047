// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Programs have no lines of their source; if one is refused, the error has them.
func TestLoadedWithoutLines(t *testing.T) {
	r := newRig(t, small)
	info, err := r.progs.LbWhole.Info()
	r.must(err)
	if lines, err := info.LineInfos(); len(lines) != 0 { // not supported: none
		t.Errorf("%d lines, %v", len(lines), err)
	}
	spec, err := compiled()
	r.must(err)
	program := spec.Programs["trim_table"].Copy()
	at := slices.IndexFunc(program.Instructions, func(i asm.Instruction) bool { return i.Source() != nil })
	line := program.Instructions[at].Source()
	program.Instructions = slices.Insert(program.Instructions, at+1, asm.LoadMem(asm.R0, asm.R9, 0, asm.DWord))
	spec = &ebpf.CollectionSpec{Maps: spec.Copy().Maps, Types: spec.Types, ByteOrder: spec.ByteOrder,
		Programs: map[string]*ebpf.ProgramSpec{"refused": program}}
	_, err = loadCollection(spec, nil)
	var refused *ebpf.VerifierError
	if !errors.As(err, &refused) || !strings.Contains(strings.Join(refused.Log, "\n"), strings.TrimSpace(line.String())) {
		t.Errorf("%+v does not name the line %q", refused, line)
	}
}
