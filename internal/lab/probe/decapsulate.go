// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"imbang/internal/host"
)

// decapsulator removes the outer header of IPv4 in IPv4 and of IPv6 in IPv6 on a
// server's device, before the server's stack sees the packet, also with GRE without
// options or GUE at GUEPort between. Linux's own tunnel devices do the same, but are
// modules (ipip, ip6_tunnel, ip_gre, fou) that a kernel may lack. Other packets pass
// unchanged.
func decapsulator() *ebpf.ProgramSpec {
	const (
		protocol   = 16 // offset of struct __sk_buff.protocol, in network byte order
		ethernet   = 14 // bytes of the Ethernet header
		header4    = 20 // of the outer headers, which have no options
		header6    = 40
		gre        = 4  // without checksum, key and number
		gue        = 12 // UDP and GUE
		adjustMAC  = 1  // BPF_ADJ_ROOM_MAC: between the Ethernet and the network header
		fixedGSO   = 1  // BPF_F_ADJ_ROOM_FIXED_GSO: segments of the inner packet keep their size
		unspecific = -1 // TC_ACT_UNSPEC: the next filter, else the stack
	)
	ipv4, ipv6 := int32(networkOrder(unix.ETH_P_IP)), int32(networkOrder(unix.ETH_P_IPV6))
	family := func(name string, header, at, next int32) asm.Instructions {
		return asm.Instructions{
			asm.LoadAbs(ethernet+at, asm.Byte).WithSymbol(name), // the next protocol
			asm.Mov.Imm(asm.R2, -header),
			asm.JEq.Imm(asm.R0, next, "shrink"),
			asm.Mov.Imm(asm.R2, -header-gre),
			asm.JEq.Imm(asm.R0, unix.IPPROTO_GRE, "shrink"),
			asm.JNE.Imm(asm.R0, unix.IPPROTO_UDP, "pass"),
			asm.LoadAbs(ethernet+header+2, asm.Half), // the port; the registers up to R5 are lost
			asm.JNE.Imm(asm.R0, GUEPort, "pass"),
			asm.Mov.Imm(asm.R2, -header-gue),
			asm.Ja.Label("shrink"),
		}
	}
	return &ebpf.ProgramSpec{
		Name: "decapsulate", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: slices.Concat(asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1), // LoadAbs reads the packet of R6
			asm.LoadMem(asm.R7, asm.R6, protocol, asm.Word),
			asm.JEq.Imm(asm.R7, ipv4, "ipv4"),
			asm.JEq.Imm(asm.R7, ipv6, "ipv6"),
			asm.Ja.Label("pass"),
		}, family("ipv4", header4, 9, unix.IPPROTO_IPIP), family("ipv6", header6, 6, unix.IPPROTO_IPV6), asm.Instructions{
			asm.Mov.Reg(asm.R1, asm.R6).WithSymbol("shrink"),
			asm.Mov.Imm(asm.R3, adjustMAC),
			asm.Mov.Imm(asm.R4, fixedGSO),
			asm.FnSkbAdjustRoom.Call(),

			asm.Mov.Imm(asm.R0, unspecific).WithSymbol("pass"),
			asm.Return(),
		}),
	}
}

// GUEPort is where GUE is expected.
const GUEPort = 6080

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
