// SPDX-License-Identifier: Apache-2.0

package director

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// The compiled code asks the kernel for the time, and for random numbers, by
// calls of helpers. In a Virtual each such call is replaced, before the code
// is loaded, by a read of a page that the owner writes: nothing else of the
// code differs from that which balances packets, and that one pays nothing.

// whimsMap holds the time [ns], then the state of the generator.
const (
	whimsMap   = "whims"
	timeAt     = 0
	randomAt   = 8
	whimsBytes = 16
)

// whims is what a Virtual has in place of the kernel's clock and chance.
type whims struct{ page *ebpf.Memory }

func (w whims) setTime(t time.Duration) error { return w.put(timeAt, uint64(t)) }

func (w whims) seed(s uint64) error { return w.put(randomAt, s) }

func (w whims) put(at int64, v uint64) error {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	_, err := w.page.WriteAt(b[:], at)
	return err
}

// readTime replaces bpf_ktime_get_ns and bpf_ktime_get_coarse_ns, and jiffies,
// which only tell that the time has changed.
var readTime = asm.Instructions{
	asm.LoadMapValue(asm.R0, 0, timeAt).WithReference(whimsMap),
	asm.LoadMem(asm.R0, asm.R0, 0, asm.DWord),
}

// drawNumber replaces bpf_get_prandom_u32 by the upper half of a linear
// congruential generator (Knuth, MMIX). A helper's call loses R1 to R5, so
// they are free.
var drawNumber = asm.Instructions{
	asm.LoadMapValue(asm.R1, 0, randomAt).WithReference(whimsMap),
	asm.LoadMem(asm.R0, asm.R1, 0, asm.DWord),
	asm.LoadImm(asm.R2, 6364136223846793005, asm.DWord),
	asm.Mul.Reg(asm.R0, asm.R2),
	asm.LoadImm(asm.R2, 1442695040888963407, asm.DWord),
	asm.Add.Reg(asm.R0, asm.R2),
	asm.StoreMem(asm.R1, 0, asm.R0, asm.DWord),
	asm.RSh.Imm(asm.R0, 32),
}

// instead is what stands for an instruction; nil leaves it.
func instead(ins asm.Instruction) asm.Instructions {
	if !ins.IsBuiltinCall() {
		return nil
	}
	switch asm.BuiltinFunc(ins.Constant) {
	case asm.FnKtimeGetNs, asm.FnKtimeGetCoarseNs, asm.FnJiffies64:
		return readTime
	case asm.FnGetPrandomU32:
		return drawNumber
	}
	return nil
}

// withWhims makes the programs of a collection take time and chance from a map
// that it adds.
func withWhims(spec *ebpf.CollectionSpec) error {
	spec.Maps[whimsMap] = &ebpf.MapSpec{
		Name: whimsMap, Type: ebpf.Array, KeySize: 4, ValueSize: whimsBytes, MaxEntries: 1, Flags: mmapable,
	}
	for name, p := range spec.Programs {
		patched, err := replaceCalls(p.Instructions)
		if err != nil {
			return fmt.Errorf("replace the clock in program %s: %w", name, err)
		}
		p.Instructions = patched
	}
	return nil
}

// replaceCalls puts other instructions in the place of calls, and lets jumps
// lead where they led.
func replaceCalls(old asm.Instructions) (asm.Instructions, error) {
	var fresh asm.Instructions
	moved := map[asm.RawInstructionOffset]asm.RawInstructionOffset{} // by place, before and after
	var jumps []jump
	at := asm.RawInstructionOffset(0)
	for it := old.Iterate(); it.Next(); {
		moved[it.Offset] = at
		with := instead(*it.Ins)
		if with == nil {
			with = asm.Instructions{*it.Ins}
			if isJump(*it.Ins) {
				jumps = append(jumps, jump{len(fresh), at, it.Offset})
			}
		} else {
			with = withMetadata(with, *it.Ins)
		}
		fresh = append(fresh, with...)
		for i := range with {
			at += with[i].Width()
		}
	}
	for _, j := range jumps {
		target := j.before + 1 + asm.RawInstructionOffset(fresh[j.index].Offset)
		to, ok := moved[target]
		offset := int64(to) - int64(j.after) - 1
		if !ok || offset < math.MinInt16 || offset > math.MaxInt16 {
			return nil, fmt.Errorf("the jump at %d leads nowhere", j.before)
		}
		fresh[j.index].Offset = int16(offset)
	}
	return fresh, nil
}

// jump is an instruction that leads elsewhere in its function.
type jump struct {
	index         int // among the new ones
	after, before asm.RawInstructionOffset
}

func isJump(ins asm.Instruction) bool {
	if !ins.OpCode.Class().IsJump() {
		return false
	}
	op := ins.OpCode.JumpOp()
	return op != asm.Call && op != asm.Exit
}

// withMetadata gives the first instruction what was known of the one that it
// stands for: its line, and the function that may begin with it.
func withMetadata(with asm.Instructions, old asm.Instruction) asm.Instructions {
	out := append(asm.Instructions(nil), with...)
	reference := out[0].Reference()
	out[0].Metadata = old.Metadata
	out[0] = out[0].WithReference(reference)
	return out
}
