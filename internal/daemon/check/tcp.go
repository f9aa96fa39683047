// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"context"
	"errors"
	"io"
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
	only := c.Send == "" && c.Expect == ""
	if c.Expect != "" {
		ctx = expectGreeting(ctx)
	}
	conn, err := t.dial(ctx)
	switch {
	case only && WasReset(err) && ctx.Err() == nil:
		return passed("connected in %s, and reset by the server", since(start))
	case err != nil:
		return failed("%s", reason(ctx, err))
	}
	defer hangUp(conn)
	if only {
		return passed("connected in %s", since(start))
	}
	defer bound(ctx, conn)()
	if err := send(conn, c.Send); err != nil {
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

// send writes a text. An empty one is no system call, which fails if the server has reset the
// connection behind its greeting.
func send(w io.Writer, text string) error {
	if text == "" {
		return nil
	}
	_, err := io.WriteString(w, text)
	return err
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
