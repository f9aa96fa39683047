// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
)

func TestReason(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	network := func(call string, number syscall.Errno) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError(call, number)}
	}
	fork := func(number syscall.Errno) error {
		return &os.PathError{Op: "fork/exec", Path: "/bin/true", Err: number}
	}
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want cause
	}{
		{t.Context(), network("socket", syscall.EMFILE), cause{"too many open files", true}},
		{t.Context(), network("socket", syscall.ENFILE), cause{"too many open files in system", true}},
		{t.Context(), network("socket", syscall.ENOBUFS), cause{"no buffer space available", true}},
		{t.Context(), network("setsockopt", syscall.ENOMEM), cause{"cannot allocate memory", true}},
		{t.Context(), network("connect", syscall.EADDRNOTAVAIL), cause{"cannot assign requested address", true}},
		{t.Context(), fmt.Errorf("bind to 10.0.0.1: %w", syscall.EADDRINUSE), cause{"address already in use", true}},
		{t.Context(), fork(syscall.EAGAIN), cause{"resource temporarily unavailable", true}},
		{ended, fork(syscall.EAGAIN), cause{"resource temporarily unavailable", true}},
		{t.Context(), network("socket", syscall.EPERM), cause{"operation not permitted", true}},
		{t.Context(), network("sendto", syscall.EPERM), cause{"operation not permitted: a firewall or a security module of this host refuses it", true}},
		{t.Context(), network("socket", syscall.EACCES), cause{"permission denied", true}},
		// Of the server, its network, or the configuration.
		{t.Context(), network("connect", syscall.ECONNREFUSED), cause{"connection refused", false}},
		{t.Context(), network("connect", syscall.EHOSTUNREACH), cause{"no route to host", false}},
		{t.Context(), network("connect", syscall.ENETUNREACH), cause{"network is unreachable", false}},
		{t.Context(), network("connect", syscall.ETIMEDOUT), cause{"connection timed out", false}},
		{t.Context(), network("read", syscall.ECONNRESET), cause{"connection reset by peer", false}},
		{t.Context(), network("connect", syscall.EACCES), cause{"permission denied", false}},
		{t.Context(), io.ErrUnexpectedEOF, cause{"the server closed the connection", false}},
		{t.Context(), fmt.Errorf("one line\nand more"), cause{"one line", false}},
		{ended, network("read", syscall.ECONNRESET), cause{"timeout", false}},
		{t.Context(), os.ErrDeadlineExceeded, cause{"timeout", false}},
	} {
		if got := reason(c.ctx, c.err); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.err, got, c.want)
		}
	}
}

// A check that this process has no file for says nothing of the server.
func TestNoFiles(t *testing.T) {
	at := listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	specs := map[string]Spec{
		"tcp": &TCP{}, "tls": &TLS{}, "http": &HTTP{}, "udp": &UDP{}, "agent": &Agent{}, "icmp": &ICMP{},
		"script": &Script{Command: []string{"/bin/true"}},
	}
	runWithin(t, brief, &UDP{}, at) // the runtime opens files for the first socket
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 3, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	results := map[string]Result{}
	for name, s := range specs {
		results[name] = runWithin(t, ample, s, at)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	for name, r := range results {
		detail := "too many open files"
		if name == "script" {
			detail = "not started: /bin/true: too many open files"
		}
		if name == "icmp" {
			detail = "no raw socket: "
		}
		expect(t, name, r, false, detail)
		if !r.Inconclusive {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
