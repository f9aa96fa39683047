// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
)

// cause is why a check failed, in a few words.
type cause struct {
	text  string
	local bool // this machine could not make the check: nothing is known of the server
}

func (c cause) String() string { return c.text }

// reason is an error as a cause, without addresses and Go's operations.
func reason(ctx context.Context, err error) cause {
	var dns *net.DNSError
	var number syscall.Errno
	isErrno := errors.As(err, &number)
	switch {
	case errors.Is(err, ErrInconclusive):
		return cause{err.Error(), true}
	case isErrno && number == syscall.EPERM && !isOfSocket(err):
		return cause{number.Error() + ": a firewall or a security module of this host refuses it", true}
	case isErrno && isLocal(err, number):
		return cause{number.Error(), true}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), ctx.Err() != nil:
		return cause{text: "timeout"}
	case isErrno:
		return cause{text: number.Error()}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return cause{text: "the server closed the connection"}
	case errors.As(err, &dns):
		return cause{text: dns.Err}
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return cause{text: line}
}

// ErrInconclusive is of a check that could not be made as it was to be: the server may be
// up or down.
var ErrInconclusive = errors.New("not checked")

// shortages are the errors of a machine that has no resources left. No ICMP error and
// no reply of a server leads to one of them.
var shortages = []syscall.Errno{
	syscall.EMFILE, syscall.ENFILE, // open files of the process, of the machine
	syscall.ENOMEM, syscall.ENOBUFS,
	syscall.EADDRNOTAVAIL, syscall.EADDRINUSE, // local ports: of connect(2), of bind(2) to port 0
	syscall.EAGAIN, // processes, of fork(2) and execve(2); local ports of UDP
}

// isLocal reports whether an error is of this machine and not of the server. An ICMPv6 error of a router
// can be EACCES, but no reply EPERM.
func isLocal(err error, number syscall.Errno) bool {
	return number == syscall.EPERM || number == syscall.EACCES && isOfSocket(err) || slices.Contains(shortages, number)
}

// isOfSocket reports whether an error is of socket(2): a raw socket requires CAP_NET_RAW.
func isOfSocket(err error) bool {
	var call *os.SyscallError
	return errors.As(err, &call) && call.Syscall == "socket"
}
