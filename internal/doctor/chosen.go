// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

// chosenPorts are the ports of UDP sockets of the calling thread's network namespace that their
// programs, and not the kernel, chose. No file of /proc and no message of netlink says so: a BPF
// program reads it from the sockets.
func chosenPorts() (map[uint16]bool, error) {
	const (
		bindPortLock = 8 // Linux's SOCK_BINDPORT_LOCK, of sk_userlocks
		// Of struct bpf_iter__udp; the first member of struct bpf_iter_meta is the output.
		meta, socket, output = 0, 8, 0
	)
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, err
	}
	var sock *btf.Struct
	if err := kernel.TypeByName("sock", &sock); err != nil {
		return nil, err
	}
	port, locks := member(sock, "skc_num"), member(sock, "sk_userlocks")
	if port == nil || locks == nil {
		return nil, errors.New("struct sock is another one")
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "ports", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceIter, AttachTo: "udp", License: "GPL",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R6, asm.R1, socket, asm.DWord),
			asm.JEq.Imm(asm.R6, 0, "end"), // the call after the last socket
			asm.LoadMem(asm.R2, asm.R6, int16(*locks/8), asm.Byte),
			asm.And.Imm(asm.R2, bindPortLock<<(*locks%8)),
			asm.JEq.Imm(asm.R2, 0, "end"),
			asm.LoadMem(asm.R2, asm.R6, int16(*port/8), asm.Half),
			asm.StoreMem(asm.RFP, -8, asm.R2, asm.Half),
			asm.LoadMem(asm.R1, asm.R1, meta, asm.DWord),
			asm.LoadMem(asm.R1, asm.R1, output, asm.DWord),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -8),
			asm.Mov.Imm(asm.R3, 2),
			asm.FnSeqWrite.Call(),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
			asm.Return(),
		}})
	if err != nil {
		return nil, err
	}
	defer program.Close()
	iterator, err := link.AttachIter(link.IterOptions{Program: program})
	if err != nil {
		return nil, err
	}
	defer iterator.Close()
	file, err := iterator.Open()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	list, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	ports := map[uint16]bool{}
	for ; len(list) >= 2; list = list[2:] {
		ports[binary.NativeEndian.Uint16(list)] = true
	}
	return ports, nil
}

// member is the offset of a member of a structure, or of one that is part of it; nil: it has none.
func member(of btf.Type, name string) *btf.Bits {
	var members []btf.Member
	switch t := btf.UnderlyingType(of).(type) {
	case *btf.Struct:
		members = t.Members
	case *btf.Union:
		members = t.Members
	}
	for _, m := range members {
		if m.Name == name {
			return &m.Offset
		}
		if inner := member(m.Type, name); inner != nil {
			*inner += m.Offset
			return inner
		}
	}
	return nil
}
