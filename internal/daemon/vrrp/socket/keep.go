// SPDX-License-Identifier: Apache-2.0

package socket

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"imbang/internal/daemon/vrrp"
)

// Kept is a socket that the next program of a process goes on with: nothing that arrives
// meanwhile is lost.
type Kept struct {
	Where
	FD     int
	Cookie uint64 // SO_COOKIE: no other socket has it
	Joined bool
}

// Keep has the socket stay open when the process executes another program.
func (s *Socket) Keep() (Kept, error) {
	cookie, err := unix.GetsockoptUint64(s.fd, unix.SOL_SOCKET, unix.SO_COOKIE)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(s.fd), unix.F_SETFD, 0)
	}
	if err != nil {
		return Kept{}, fmt.Errorf("VRRP on device %s: %w", s.Device, err)
	}
	return Kept{s.Where, s.fd, cookie, s.joined.Load()}, nil
}

// Unkeep undoes Keep.
func (s *Socket) Unkeep() { unix.CloseOnExec(s.fd) }

// Adopt goes on with a socket of an earlier program of this process. Accept is to follow.
func Adopt(k Kept) (*Socket, error) {
	protocol, err := unix.GetsockoptInt(k.FD, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	cookie, err2 := unix.GetsockoptUint64(k.FD, unix.SOL_SOCKET, unix.SO_COOKIE)
	if err := errors.Join(err, err2); err != nil || protocol != vrrp.Protocol || cookie != k.Cookie {
		return nil, fmt.Errorf("VRRP on device %s: descriptor %d is not the earlier program's socket", k.Device, k.FD)
	}
	unix.CloseOnExec(k.FD)
	s := newSocket(k.Where, k.FD)
	s.joined.Store(k.Joined)
	return s, nil
}

// CloseInherited closes sockets that an earlier program of this process has left open and that
// were not adopted. All others close when a program is executed.
func CloseInherited() {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, entry := range open {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue
		}
		if protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL); err == nil && protocol == vrrp.Protocol {
			unix.Close(fd)
		}
	}
}
