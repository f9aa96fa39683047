// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"imbang/internal/host"
)

// Loss drops some of the packets that come in by a device. The sender of a packet does not
// notice: its own device takes it.
type Loss struct {
	testing.TB
	counts *ebpf.Map
}

// Indexes of the counters.
const (
	lossPassed int32 = iota
	lossDropped
	lossCounts
)

// Verdicts of a classifier (linux/pkt_cls.h).
const (
	tcUnspec = -1
	tcShot   = 2
)

// Lose drops a share of all packets that come in by a device, each by itself at random, until
// the device is removed or the test ends.
func Lose(t testing.TB, ns *host.Namespace, device string, share float64) *Loss {
	t.Helper()
	counts, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: uint32(lossCounts)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { counts.Close() })
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "lose", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.FnGetPrandomU32.Call(),
		// 31 bits, as an immediate operand has a sign.
		asm.RSh.Imm(asm.R0, 1),
		asm.Mov.Imm(asm.R6, lossPassed),
		asm.Mov.Imm(asm.R7, tcUnspec),
		asm.JGE.Imm(asm.R0, int32(share*(1<<31-1)), "count"),
		asm.Mov.Imm(asm.R6, lossDropped),
		asm.Mov.Imm(asm.R7, tcShot),
		asm.StoreMem(asm.RFP, -4, asm.R6, asm.Word).WithSymbol("count"),
		asm.LoadMapPtr(asm.R1, counts.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Reg(asm.R0, asm.R7).WithSymbol("out"),
		asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close() // the device holds it
	index, err := ns.LinkIndex(device)
	if err != nil {
		t.Fatal(err)
	}
	err = ns.Do(func() error {
		l, err := link.AttachTCX(link.TCXOptions{Program: program, Interface: index, Attach: ebpf.AttachTCXIngress})
		if err == nil {
			t.Cleanup(func() { l.Close() })
			return nil
		}
		if !errors.Is(err, ebpf.ErrNotSupported) { // Linux before 6.6
			return err
		}
		return host.AddClassifier("lose", index, host.Ingress, program.FD())
	})
	if err != nil {
		t.Fatal(err)
	}
	return &Loss{t, counts}
}

// Packets are how many passed and how many were dropped.
func (l *Loss) Packets() (passed, dropped uint64) {
	l.Helper()
	for i, n := range []*uint64{&passed, &dropped} {
		if err := l.counts.Lookup(uint32(i), n); err != nil {
			l.Fatal(err)
		}
	}
	return passed, dropped
}
