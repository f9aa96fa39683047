// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"math/bits"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"imbang/internal/host"
)

// Tag puts a VLAN's tag on all IPv4 packets that leave by a device, until the device is removed
// or the test ends. As with a VLAN's device, the tag goes beside the packet unless the device
// has txvlan off.
func Tag(t testing.TB, ns *host.Namespace, device string, vlan uint16) {
	t.Helper()
	const protocol = 16 // of struct __sk_buff
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "tag", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, protocol, asm.Word),
		asm.JNE.Imm(asm.R2, int32(bits.ReverseBytes16(unix.ETH_P_IP)), "out"),
		asm.Mov.Imm(asm.R2, int32(bits.ReverseBytes16(unix.ETH_P_8021Q))),
		asm.Mov.Imm(asm.R3, int32(vlan)),
		asm.FnSkbVlanPush.Call(),
		asm.Mov.Imm(asm.R0, tcUnspec).WithSymbol("out"),
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
		l, err := link.AttachTCX(link.TCXOptions{Program: program, Interface: index, Attach: ebpf.AttachTCXEgress})
		if err == nil {
			t.Cleanup(func() { l.Close() })
			return nil
		}
		if !errors.Is(err, ebpf.ErrNotSupported) { // Linux before 6.6
			return err
		}
		return host.AddClassifier("tag", index, host.Egress, program.FD())
	})
	if err != nil {
		t.Fatal(err)
	}
}
