// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// TCP connects, and can exchange a line.
type TCP struct {
	Send   string `yaml:"send" jsonschema_description:"text to send after connecting; escapes as in YAML"`
	Expect string `yaml:"expect" jsonschema_description:"text that the server must send, anywhere in its first 4096 bytes"`
}

const maxExpected = 4096 // [bytes]

// Problems implements Spec.
func (c *TCP) Problems() (list []Problem) {
	if len(c.Expect) > maxExpected {
		list = append(list, Problem{"expect", "longer than 4096 bytes: want a shorter text"})
	}
	return list
}

// Checker implements Spec.
func (c *TCP) Checker() (Checker, error) { return *c, nil }

// Check implements Checker.
func (c TCP) Check(ctx context.Context, t Target) Result {
	start := time.Now()
	conn, err := t.dial(ctx)
	if err != nil {
		return failed("%s", reason(ctx, err))
	}
	defer hangUp(conn)
	if c.Send == "" && c.Expect == "" {
		return passed("connected in %s", since(start))
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	if _, err := io.WriteString(conn, c.Send); err != nil {
		return failed("connected, but sending failed: %s", reason(ctx, err))
	}
	if c.Expect == "" {
		return passed("connected and sent in %s", since(start))
	}
	if got, err := readUntil(conn, []byte(c.Expect)); err != nil {
		return failed("connected, but %.40q did not come: %s; received %.40q", c.Expect, reason(ctx, err), got)
	}
	return passed("connected and received the expected text in %s", since(start))
}

// readUntil reads until a text has come, maxExpected bytes at most.
func readUntil(r io.Reader, want []byte) ([]byte, error) {
	got := make([]byte, 0, maxExpected)
	for !bytes.Contains(got, want) {
		if len(got) == cap(got) {
			return got, errors.New("it is not in the first 4096 bytes")
		}
		n, err := r.Read(got[len(got):cap(got)])
		got = got[:len(got)+n]
		if err != nil && !bytes.Contains(got, want) {
			return got, err
		}
	}
	return got, nil
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
