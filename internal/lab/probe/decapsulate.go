// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"imbang/internal/host"
)

// decapsulator removes the outer header of IPv4 in IPv4 and of IPv6 in IPv6 on a
// server's device, before the server's stack sees the packet. Linux's own tunnel
// devices do the same, but are modules (ipip, ip6_tunnel) that a kernel may
// lack. Other packets pass unchanged.
func decapsulator() *ebpf.ProgramSpec {
	const (
		protocol   = 16 // offset of struct __sk_buff.protocol, in network byte order
		ethernet   = 14 // bytes of the Ethernet header
		adjustMAC  = 1  // BPF_ADJ_ROOM_MAC: between the Ethernet and the network header
		fixedGSO   = 1  // BPF_F_ADJ_ROOM_FIXED_GSO: segments of the inner packet keep their size
		unspecific = -1 // TC_ACT_UNSPEC: the next filter, else the stack
	)
	ipv4, ipv6 := int32(networkOrder(unix.ETH_P_IP)), int32(networkOrder(unix.ETH_P_IPV6))
	return &ebpf.ProgramSpec{
		Name: "decapsulate", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1), // LoadAbs reads the packet of R6
			asm.LoadMem(asm.R7, asm.R6, protocol, asm.Word),
			asm.JEq.Imm(asm.R7, ipv4, "ipv4"),
			asm.JEq.Imm(asm.R7, ipv6, "ipv6"),
			asm.Ja.Label("pass"),

			// The protocol, 9 bytes into the header.
			asm.LoadAbs(ethernet+9, asm.Byte).WithSymbol("ipv4"),
			asm.JNE.Imm(asm.R0, unix.IPPROTO_IPIP, "pass"),
			asm.Mov.Imm(asm.R2, -20),
			asm.Ja.Label("shrink"),

			// The next header, 6 bytes into the header.
			asm.LoadAbs(ethernet+6, asm.Byte).WithSymbol("ipv6"),
			asm.JNE.Imm(asm.R0, unix.IPPROTO_IPV6, "pass"),
			asm.Mov.Imm(asm.R2, -40),

			asm.Mov.Reg(asm.R1, asm.R6).WithSymbol("shrink"),
			asm.Mov.Imm(asm.R3, adjustMAC),
			asm.Mov.Imm(asm.R4, fixedGSO),
			asm.FnSkbAdjustRoom.Call(),

			asm.Mov.Imm(asm.R0, unspecific).WithSymbol("pass"),
			asm.Return(),
		},
	}
}

// networkOrder is a 16-bit number as a little-endian CPU reads it from a packet.
func networkOrder(n uint16) uint16 { return n<<8 | n>>8 }

// Decapsulate puts the decapsulator on a device of a namespace.
func Decapsulate(ns *host.Namespace, dev string) error {
	program, err := ebpf.NewProgram(decapsulator())
	if err != nil {
		return fmt.Errorf("load the program that ends tunnels: %w", err)
	}
	err = ns.Do(func() error {
		link, err := net.InterfaceByName(dev)
		if err != nil {
			return err
		}
		return host.AddClassifier("decapsulate", link.Index, host.Ingress, program.FD())
	})
	return errors.Join(err, program.Close())
}
