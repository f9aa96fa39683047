// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"imbang/internal/model"
)

// Socket is one that accepts packets for all addresses of this host.
type Socket struct {
	Protocol model.Protocol
	Port     uint16
	IPv6     bool // at ::, else at 0.0.0.0
	Process  int  // 0: not known
	Program  string
}

// procUnconnected is the state of a datagram socket without a peer in /proc/net/udp.
const procUnconnected = 7

// settle is the time after which a socket for one query is closed.
const settle = time.Second

// openSocket is a socket that a process may have open.
type openSocket struct {
	Socket
	inode uint64
}

// openSockets are the sockets at 0.0.0.0 and :: of the calling thread's network namespace that
// accept connections, and datagrams of any peer.
func openSockets() (all []openSocket) {
	at, err := procfs.NewFS("/proc/thread-self")
	if err != nil {
		return nil
	}
	add := func(protocol model.Protocol, address []byte, port, inode uint64) {
		if ip, ok := netip.AddrFromSlice(address); ok && ip.IsUnspecified() {
			all = append(all, openSocket{Socket{Protocol: protocol, Port: uint16(port), IPv6: ip.Is6()}, inode})
		}
	}
	//lint:ignore SA1019 the file is slow on hosts with many sockets, which a command that is run by hand may be
	for _, read := range []func() (procfs.NetTCP, error){at.NetTCP, at.NetTCP6} {
		lines, _ := read() // without IPv6 there is none of it
		for _, l := range lines {
			if l.St == listens {
				add(model.TCP, l.LocalAddr, l.LocalPort, l.Inode)
			}
		}
	}
	for _, read := range []func() (procfs.NetUDP, error){at.NetUDP, at.NetUDP6} {
		lines, _ := read()
		for _, l := range lines {
			if l.St == procUnconnected {
				add(model.UDP, l.LocalAddr, l.LocalPort, l.Inode)
			}
		}
	}
	return all
}

// gatherSockets are the sockets of servers at 0.0.0.0 and :: of the calling thread's network
// namespace, with their processes. A datagram socket is a client's if the kernel chose its port, or if
// it is open for one query: resolvers choose ports themselves, at random. On a kernel that does not
// report which ports it chose, the second rule is the only one.
func gatherSockets(wait func(time.Duration)) []Socket {
	open := openSockets()
	if slices.ContainsFunc(open, func(s openSocket) bool { return s.Protocol == model.UDP }) {
		chosen, err := chosenPorts()
		wait(settle)
		still := openSockets()
		open = slices.DeleteFunc(open, func(s openSocket) bool {
			return s.Protocol == model.UDP && (err == nil && !chosen[s.Port] || !slices.Contains(still, s))
		})
	}
	inodes := map[uint64]int{}
	all := make([]Socket, len(open))
	for i, s := range open {
		all[i], inodes[s.inode] = s.Socket, i
	}
	for pid, own := range socketsOf(inodes) {
		for _, inode := range own {
			if s := &all[inodes[inode]]; s.Process == 0 || pid < s.Process {
				s.Process, s.Program = pid, program(pid)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Socket) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
	return all
}

// covered reports whether packets for an address and port go to a service, and so never
// reach a socket of this host.
func (f Facts) covered(protocol model.Protocol, addr netip.Addr, port uint16) bool {
	return slices.ContainsFunc(f.Services, func(s Service) bool {
		return s.Key.Protocol == protocol && s.Key.Addr == addr && (s.Key.Port == port || s.Key.Port == 0)
	})
}

// examineSockets finds sockets that clients reach at virtual addresses.
func examineSockets(r report, f Facts) {
	if !f.Loaded {
		return
	}
	found := map[string]bool{}
	for _, s := range f.Sockets {
		for _, six := range []bool{false, true} {
			at := f.reachableAt(s, six)
			key := fmt.Sprintf("%s %d %t", s.Protocol, s.Port, six)
			if len(at) == 0 || found[key] {
				continue
			}
			if found[key] = true; len(found) <= shown {
				r.warn(socketRule(s, at), "%s, without an address of its own, also receives what clients send to port %d of %s, which no service has. Bind it to an address of this host, or drop these packets", s, s.Port, virtualAddresses(at))
			}
		}
	}
	if n := len(found); n > shown {
		r.warn("", "so do %d more", n-shown)
	} else if n == 0 {
		r.ok("no socket of this host is reachable at virtual addresses")
	}
}

// reachableAt are the virtual addresses of a family on this host at which clients reach a socket.
func (f Facts) reachableAt(s Socket, six bool) []netip.Addr {
	switch {
	case six && !s.IPv6:
		return nil
	case !six && s.IPv6 && slices.ContainsFunc(f.Sockets, func(o Socket) bool {
		return !o.IPv6 && o.Protocol == s.Protocol && o.Port == s.Port
	}):
		return nil // it is the other one's
	}
	own, _ := f.addresses()
	own = slices.DeleteFunc(own, func(a netip.Addr) bool { return a.Is6() != six || f.covered(s.Protocol, a, s.Port) })
	slices.SortFunc(own, netip.Addr.Compare)
	return own
}

// virtualAddresses names the first of several.
func virtualAddresses(all []netip.Addr) string {
	if len(all) == 1 {
		return fmt.Sprintf("virtual address %s", all[0])
	}
	return fmt.Sprintf("virtual address %s and of %d more", all[0], len(all)-1)
}

// socketRule drops what clients send to a socket, at each of the addresses.
func socketRule(s Socket, all []netip.Addr) string {
	program := "iptables"
	if all[0].Is6() {
		program = "ip6tables"
	}
	var to []string
	for _, a := range all {
		to = append(to, a.String())
	}
	return fmt.Sprintf("%s -I INPUT -d %s -p %s --dport %d -j DROP", program, strings.Join(to, ","), strings.ToLower(s.Protocol.String()), s.Port)
}

func (s Socket) String() string {
	at := "0.0.0.0"
	if s.IPv6 {
		at = "[::]"
	}
	text := fmt.Sprintf("%s socket %s:%d", s.Protocol, at, s.Port)
	if s.Process != 0 {
		text += fmt.Sprintf(" of %s (process %d)", s.Program, s.Process)
	}
	return text
}
