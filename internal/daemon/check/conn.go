// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// bound ends reads and writes of a connection when a context ends: at its deadline,
// and when the runner stops. The caller ends that by stop.
func bound(ctx context.Context, conn interface{ SetDeadline(time.Time) error }) (stop func() bool) {
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	return context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
}

// hangUp closes a connection by a reset: thousands of checks a second would use up
// the local ports by TIME_WAIT.
func hangUp(conn net.Conn) {
	if l, ok := conn.(interface{ SetLinger(sec int) error }); ok {
		_ = l.SetLinger(0)
	}
	_ = conn.Close()
}

// reason is an error in a few words, without addresses and Go's operations.
func reason(ctx context.Context, err error) string {
	var dns *net.DNSError
	var number syscall.Errno
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), ctx.Err() != nil:
		return "timeout"
	case errors.As(err, &number):
		return number.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the server closed the connection"
	case errors.As(err, &dns):
		return dns.Err
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
