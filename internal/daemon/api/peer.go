// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"fmt"
	"net"
	"os/user"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// peer is the process at the other end, as the kernel knew it when it connected.
type peer struct {
	Caller
	class
	groups  []uint32
	err     error
	refused error // it has too many connections
}

func peerOf(c net.Conn) (p peer) {
	defer func() { p.class = p.classOf() }()
	socket, ok := c.(syscall.Conn)
	if !ok {
		p.err = errors.New("the connection is not a socket")
		return p
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		p.err = err
		return p
	}
	err = raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, p.err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); p.err != nil {
			return
		}
		p.UID, p.PID = cred.Uid, cred.Pid
		p.groups, p.err = peerGroups(int(fd))
		p.groups = append(p.groups, cred.Gid)
	})
	p.err = errors.Join(p.err, err)
	p.Name = strconv.FormatUint(uint64(p.UID), 10)
	if u, err := user.LookupId(p.Name); err == nil {
		p.Name = u.Username
	}
	return p
}

// peerGroups are the supplementary groups of the peer (SO_PEERGROUPS, Linux 4.13).
func peerGroups(fd int) ([]uint32, error) {
	groups := make([]uint32, 64)
	for {
		size := uint32(len(groups) * 4)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == 0:
			return groups[:size/4], nil
		case errno == unix.ERANGE && int(size/4) > len(groups):
			groups = make([]uint32, size/4)
		default:
			return nil, fmt.Errorf("groups of the peer: %w", errno)
		}
	}
}

func (p peer) classOf() class {
	switch {
	case p.err != nil:
		return ofOthers
	case p.UID == 0:
		return ofRoot
	case p.in(Group):
		return ofGroup
	}
	return ofOthers
}

// in reports whether the peer is in a group.
func (p peer) in(name string) bool {
	g, err := user.LookupGroup(name)
	if err != nil {
		return false
	}
	for _, id := range p.groups {
		if strconv.FormatUint(uint64(id), 10) == g.Gid {
			return true
		}
	}
	return false
}
