// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// dialer sends no keep-alive probes: the connections of checks are short, and each option of a
// socket is a system call.
var dialer = net.Dialer{KeepAlive: -1}

// Connect connects to a server by TCP. control prepares the socket (net.Dialer.Control); nil: it
// needs no preparation.
//
// A server that closes a connection by a reset can do so before this process reads the result of
// connect(2), which is then the error of the reset (WasReset). A check that expects a greeting gets
// the connection all the same: the greeting is in the socket.
func Connect(ctx context.Context, server netip.AddrPort, control func(network, address string, raw syscall.RawConn) error) (net.Conn, error) {
	d, second := dialer, -1
	d.Control = control
	if ctx.Value(greeted{}) != nil {
		d.Control = func(network, address string, raw syscall.RawConn) (err error) {
			if control != nil {
				err = control(network, address, raw)
			}
			return errors.Join(err, raw.Control(func(fd uintptr) {
				if second >= 0 { // of an earlier try: net tries again with another socket on EADDRNOTAVAIL
					_ = unix.Close(second)
				}
				second, _ = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
			}))
		}
	}
	// Not DialTCP, which binds the socket in any case.
	conn, err := d.DialContext(ctx, "tcp", server.String())
	if second < 0 {
		return conn, err
	}
	file := os.NewFile(uintptr(second), "")
	defer file.Close()
	if !WasReset(err) || ctx.Err() != nil {
		return conn, err
	}
	return net.FileConn(file)
}

// greeted is the key of a context whose connections begin with a greeting of the server.
type greeted struct{}

func expectGreeting(ctx context.Context) context.Context {
	return context.WithValue(ctx, greeted{}, true)
}

// WasReset reports whether an error of Connect says that the server accepted the connection and
// reset it. Linux reports ECONNRESET, or EPIPE behind a FIN, only after the handshake: a reset in
// reply to the SYN is ECONNREFUSED.
func WasReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
