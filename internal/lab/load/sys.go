// SPDX-License-Identifier: Apache-2.0

package load

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls below never block, so they go through RawSyscall: the Go
// scheduler is not told, which saves about a tenth of a microsecond each, and
// the thread's processor cannot be taken away in between. They retry EINTR.

// rawSocket opens a non-blocking TCP socket.
func rawSocket(family int) (int32, unix.Errno) {
	fd, _, e := unix.RawSyscall(unix.SYS_SOCKET, uintptr(family),
		unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	return int32(fd), e
}

func rawConnect(fd int32, a *sockaddr) unix.Errno {
	for {
		_, _, e := unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&a.raw)), a.len)
		if e != unix.EINTR {
			return e
		}
	}
}

// rawBind binds to an address and leaves the port to connect, which can then
// choose it for the whole 4-tuple: every source address has the full port
// range towards one target, and bind does not search.
func rawBind(fd int32, a *sockaddr) unix.Errno {
	one := int32(1)
	unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT,
		uintptr(unsafe.Pointer(&one)), 4, 0)
	_, _, e := unix.RawSyscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&a.raw)), a.len)
	return e
}

// rawSend is send(2) without SIGPIPE.
func rawSend(fd int32, b []byte) (int, unix.Errno) {
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
			uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0)
		if e != unix.EINTR {
			return int(n), e
		}
	}
}

// rawRecv is recv(2): it spares read(2)'s walk through the file layer.
func rawRecv(fd int32, b []byte) (int, unix.Errno) {
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
			uintptr(len(b)), 0, 0, 0)
		if e != unix.EINTR {
			return int(n), e
		}
	}
}

// rawClose also takes the descriptor out of its epoll set. It is not retried:
// Linux releases the descriptor whatever close returns.
func rawClose(fd int32) {
	unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)
}
