// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"imbang/internal/host"
)

// Gate lets packets pass devices in both directions or, while it is closed, none. Devices
// keep their carrier, and senders that are not on this host notice nothing. It closes for
// all its devices at once.
type Gate struct {
	closed  *ebpf.Map
	program *ebpf.Program
}

// NewGate makes an open one.
func NewGate() (*Gate, error) {
	const (
		unspecific = -1 // TC_ACT_UNSPEC: the next filter, else as without one
		shot       = 2  // TC_ACT_SHOT: drop
	)
	closed, err := ebpf.NewMap(&ebpf.MapSpec{Name: "gate", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("make a gate: %w", err)
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "gate", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, closed.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "pass"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.Word),
		asm.JEq.Imm(asm.R1, 0, "pass"),
		asm.Mov.Imm(asm.R0, shot),
		asm.Return(),
		asm.Mov.Imm(asm.R0, unspecific).WithSymbol("pass"),
		asm.Return(),
	}})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a gate: %w", err), closed.Close())
	}
	return &Gate{closed, program}, nil
}

// Attach puts the gate on devices of a namespace, where it stays as long as they do.
func (g *Gate) Attach(ns *host.Namespace, devices ...string) error {
	for _, device := range devices {
		index, err := ns.LinkIndex(device)
		if err != nil {
			return err
		}
		err = ns.Do(func() error {
			if err := host.AddClassifier("gate", index, host.Ingress, g.program.FD()); err != nil {
				return err
			}
			return host.AddClassifier("gate", index, host.Egress, g.program.FD())
		})
		if err != nil {
			return fmt.Errorf("gate of device %s: %w", device, err)
		}
	}
	return nil
}

// Set closes or opens it.
func (g *Gate) Set(closed bool) error {
	value := uint32(0)
	if closed {
		value = 1
	}
	if err := g.closed.Put(uint32(0), value); err != nil {
		return fmt.Errorf("close or open a gate: %w", err)
	}
	return nil
}

// Close frees it. On its devices it stays as it is.
func (g *Gate) Close() error { return errors.Join(g.program.Close(), g.closed.Close()) }
