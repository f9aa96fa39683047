// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// TCP connects, and can exchange a line.
type TCP struct {
	Send   string `yaml:"send" jsonschema_description:"text to send after connecting; escapes as in YAML"`
	Expect string `yaml:"expect" jsonschema_description:"regular expression (RE2) to find in the first 4096 bytes from the server; ^ is their beginning: ^220 for a greeting; .* for any reply"`
}

const maxExpected = 4096 // [bytes]

// Problems implements Spec.
func (c *TCP) Problems() []Problem { return patternProblems("expect", c.Expect) }

// patternProblems are those of a regular expression.
func patternProblems(key, pattern string) (list []Problem) {
	if _, err := regexp.Compile(pattern); err != nil {
		list = append(list, Problem{key, fmt.Sprintf(`%q is not a regular expression: %s; \ before a sign takes it literally`, pattern, strings.TrimPrefix(err.Error(), "error parsing regexp: "))})
	}
	return list
}

type tcpChecker struct {
	send   string
	expect *regexp.Regexp // nil: no reply is needed
}

// Checker implements Spec.
func (c *TCP) Checker() (_ Checker, err error) {
	out := tcpChecker{send: c.Send}
	if c.Expect != "" {
		out.expect, err = regexp.Compile(c.Expect)
	}
	return out, err
}

// Check implements Checker.
func (c tcpChecker) Check(ctx context.Context, t Target) Result {
	start := time.Now()
	only := c.send == "" && c.expect == nil
	if c.expect != nil {
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
	if err := send(conn, c.send); err != nil {
		return failed("connected, but sending failed: %s", reason(ctx, err))
	}
	if c.expect == nil {
		return passed("connected and sent in %s", since(start))
	}
	if got, err := readUntil(conn, c.expect); err != nil {
		return failed("connected, but received no match of %.40q: %s; received %.40q", c.expect, reason(ctx, err), got)
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

// readUntil reads until the text so far matches, maxExpected bytes at most.
func readUntil(r io.Reader, want *regexp.Regexp) ([]byte, error) {
	got := make([]byte, 0, maxExpected)
	for len(got) < cap(got) {
		n, err := r.Read(got[len(got):cap(got)])
		got = got[:len(got)+n]
		if n > 0 && want.Match(got) {
			return got, nil
		}
		if err != nil {
			return got, err
		}
	}
	return got, errors.New("it is not in the first 4096 bytes")
}
