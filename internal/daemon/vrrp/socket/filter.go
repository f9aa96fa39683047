// SPDX-License-Identifier: Apache-2.0

package socket

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"imbang/internal/daemon/vrrp"
)

// Filters are classic BPF programs. The virtual router's identifier is the second byte of
// the message. The kernel gives the filter of an IPv4 socket the IP header, too, and of an
// IPv6 one the message alone: its IP header is at networkHeader (SKF_NET_OFF).
const (
	everything    = 1 << 16
	networkHeader = 1<<32 - 0x100000
)

// Offsets in IP headers [bytes].
const (
	ttl4, source4, destination4 = 8, 12, 16
	hops6, source6, dest6       = networkHeader + 7, networkHeader + 8, networkHeader + 24
)

// Strict has the kernel drop what does not come from a peer by unicast, or directly from the
// link by multicast. That is for a flood: what is dropped is not counted as refused.
func (s *Socket) Strict() error {
	if s.strict {
		return nil
	}
	s.strict = true
	if err := s.attach(s.rules); err != nil {
		s.strict = false
		return fmt.Errorf("VRRP on device %s: %w", s.Device, err)
	}
	return nil
}

func (s *Socket) attach(rules []Rule) error {
	program := s.program(rules)
	err := unix.SetsockoptSockFprog(s.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	if err != nil {
		return fmt.Errorf("SO_ATTACH_FILTER: %w", err)
	}
	return nil
}

func accept() unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: everything} }
func drop() unix.SockFilter   { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K} }

// program accepts what is for one of the rules. The identifier is loaded once, and rules that
// accept the same have one end in common: programs of a socket, the former one and its successor,
// have room for net.core.optmem_max, which is 20 KB before Linux 6.7.
func (s *Socket) program(rules []Rule) []unix.SockFilter {
	program := s.loadID()
	jumps := make([]int, len(rules)) // of each rule, to its end
	for i := range rules {
		program = append(program,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(rules[i].ID), Jf: 1},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA})
		jumps[i] = len(program) - 1
	}
	program = append(program, drop())
	for i := range rules {
		same := slices.IndexFunc(rules[:i], func(o Rule) bool { return !s.strict || slices.Equal(o.Peers, rules[i].Peers) })
		if same >= 0 {
			to := jumps[same] + int(program[jumps[same]].K)
			program[jumps[i]].K = uint32(to - jumps[i])
			continue
		}
		program[jumps[i]].K = uint32(len(program) - jumps[i] - 1)
		if s.strict {
			program = append(program, s.restrict(&rules[i])...)
		} else {
			program = append(program, accept())
		}
	}
	return program
}

func (s *Socket) loadID() []unix.SockFilter {
	if s.IPv6 {
		return []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 1}}
	}
	return []unix.SockFilter{
		{Code: unix.BPF_LDX | unix.BPF_B | unix.BPF_MSH, K: 0}, // length of the IPv4 header
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_IND, K: 1},
	}
}

// restrict accepts or drops what is for a rule.
func (s *Socket) restrict(r *Rule) (body []unix.SockFilter) {
	hops, source, destination, group := uint32(ttl4), uint32(source4), uint32(destination4), vrrp.Group4
	if s.IPv6 {
		hops, source, destination, group = hops6, source6, dest6, vrrp.Group6
	}
	if len(r.Peers) == 0 {
		body = append(body,
			unix.SockFilter{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: hops},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: vrrp.HopLimit, Jt: 1},
			drop())
		body = append(body, ifAddress(destination, group)...)
	}
	for _, p := range r.Peers {
		body = append(body, ifAddress(source, p)...)
	}
	return append(body, drop())
}

// ifAddress accepts a packet that has an address at an offset.
func ifAddress(offset uint32, a netip.Addr) (program []unix.SockFilter) {
	b := a.AsSlice()
	words := len(b) / 4
	for i := range words {
		program = append(program,
			unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset + uint32(4*i)},
			// Otherwise behind the last one of these, and accept.
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: binary.BigEndian.Uint32(b[4*i:]), Jf: uint8(2*(words-1-i) + 1)})
	}
	return append(program, accept())
}
