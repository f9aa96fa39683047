// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"

	"imbang/internal/daemon/l7"
)

// listening is a socket that accepts connections.
type listening struct {
	at    netip.AddrPort
	inode uint64
}

// listens is the state of such a socket in /proc/net/tcp.
const listens = 10

// takenAddresses are those of listeners that processes accept connections at, other than the own ones.
// Two processes of one user may both do so, as HAProxy lets the kernel distribute
// connections over all that do (SO_REUSEPORT).
func takenAddresses(c *l7.Config, own func(pid int) bool) (all []Taken) {
	var sockets []listening
	// Of the calling thread's network namespace.
	at, err := procfs.NewFS("/proc/thread-self")
	if err != nil {
		return nil
	}
	//lint:ignore SA1019 the file is slow on hosts with many sockets, which a command that is run by hand may be
	for _, read := range []func() (procfs.NetTCP, error){at.NetTCP, at.NetTCP6} {
		lines, _ := read() // without IPv6 there is none of it
		for _, l := range lines {
			if ip, ok := netip.AddrFromSlice(l.LocalAddr); ok && l.St == listens {
				sockets = append(sockets, listening{netip.AddrPortFrom(ip, uint16(l.LocalPort)), l.Inode})
			}
		}
	}
	wanted := map[uint64]Taken{}
	for i := range c.Listeners {
		for _, bind := range c.Listeners[i].Bind {
			for _, s := range sockets {
				if s.at.Port() == bind.Port() && overlap(s.at.Addr(), bind.Addr()) {
					wanted[s.inode] = Taken{Listener: c.Listeners[i].Name, At: bind}
				}
			}
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	for pid, inodes := range socketsOf(wanted) {
		if own(pid) {
			for _, i := range inodes {
				delete(wanted, i) // inherited by a worker
			}
		}
	}
	seen := map[string]bool{}
	for pid, inodes := range socketsOf(wanted) {
		for _, i := range inodes {
			t := wanted[i]
			t.Process, t.Program, t.Unit = pid, program(pid), unit(pid)
			// A process and its workers are one.
			if key := t.At.String() + " " + t.Program + " " + t.Unit; !seen[key] {
				seen[key] = true
				all = append(all, t)
			}
		}
	}
	slices.SortFunc(all, func(a, b Taken) int { return a.At.Compare(b.At) })
	return all
}

// overlap reports whether a socket at one address gets connections to the other. One at [::] may be
// for IPv4, too.
func overlap(socket, bind netip.Addr) bool {
	if socket.Is4In6() {
		socket = socket.Unmap()
	}
	return socket == bind || socket == netip.IPv6Unspecified() || socket.Is4() == bind.Is4() && (socket.IsUnspecified() || bind.IsUnspecified())
}

// socketsOf are the processes that have sockets open.
func socketsOf[T any](inodes map[uint64]T) map[int][]uint64 {
	all := map[int][]uint64{}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		to, err := os.Readlink(link)
		if err != nil {
			continue
		}
		text, is := strings.CutPrefix(to, "socket:[")
		inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64)
		if _, wanted := inodes[inode]; !is || err != nil || !wanted {
			continue
		}
		pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
		all[pid] = append(all[pid], inode)
	}
	return all
}

func program(pid int) string {
	text, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	return strings.TrimSpace(string(text))
}

var serviceUnit = regexp.MustCompile(`(?m)/([^/\n]+\.service)`)

// unit is that of systemd which a process belongs to.
func unit(pid int) string {
	text, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	all := serviceUnit.FindAllStringSubmatch(string(text), -1)
	if len(all) == 0 {
		return ""
	}
	return strings.TrimSuffix(all[len(all)-1][1], ".service")
}
