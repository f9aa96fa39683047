// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
)

// UDP sends a datagram. Without an expected reply, silence is a success, and only an
// ICMP error within the timeout a failure.
type UDP struct {
	Send    string `yaml:"send" jsonschema_description:"datagram to send, as text; default empty"`
	SendHex string `yaml:"send_hex" jsonschema_description:"likewise in hexadecimal digits"`
	Expect  string `yaml:"expect" jsonschema_description:"regular expression (RE2) that the reply must match; .* for any reply; default: no reply is needed"`
}

const longestDatagram = 65535 - 20 - 8 // by IPv4 [bytes]

// Problems implements Spec.
func (c *UDP) Problems() (list []Problem) {
	if c.Send != "" && c.SendHex != "" {
		list = append(list, Problem{"send_hex", "a check sends one datagram: remove send or send_hex"})
	}
	decoded, err := hex.DecodeString(strings.ReplaceAll(c.SendHex, " ", ""))
	if err != nil {
		list = append(list, Problem{"send_hex", fmt.Sprintf("%q: want hexadecimal digits, two for each byte", c.SendHex)})
	}
	for key, n := range map[string]int{"send": len(c.Send), "send_hex": len(decoded)} {
		if n > longestDatagram {
			list = append(list, Problem{key, fmt.Sprintf("%d bytes: want at most %d, the longest datagram", n, longestDatagram)})
		}
	}
	return append(list, patternProblems("expect", c.Expect)...)
}

type udpChecker struct {
	send   []byte
	expect *regexp.Regexp
}

// Checker implements Spec.
func (c *UDP) Checker() (Checker, error) {
	out := udpChecker{send: []byte(c.Send)}
	var err error
	if c.SendHex != "" {
		if out.send, err = hex.DecodeString(strings.ReplaceAll(c.SendHex, " ", "")); err != nil {
			return nil, err
		}
	}
	if c.Expect != "" {
		out.expect, err = regexp.Compile("(?s)" + c.Expect)
	}
	return out, err
}

// Check implements Checker.
func (c udpChecker) Check(ctx context.Context, t Target) Result {
	start := time.Now()
	conn, err := dialer.DialContext(ctx, "udp", t.Addr.String())
	if err != nil {
		return failed("%s", reason(ctx, err))
	}
	defer conn.Close()
	defer bound(ctx, conn)()
	if _, err := conn.Write(c.send); err != nil {
		return failed("%s", reason(ctx, err))
	}
	buffer := make([]byte, 64<<10)
	n, err := conn.Read(buffer)
	fits := err == nil
	if fits && c.expect != nil {
		fits, err = matches(ctx, c.expect, bytes.NewReader(buffer[:n]))
	}
	switch {
	case fits && err == nil:
		return passed("reply of %d bytes in %s", n, since(start))
	case err == nil:
		return failed("the reply of %d bytes does not match %q", n, strings.TrimPrefix(c.expect.String(), "(?s)"))
	case errors.Is(err, os.ErrDeadlineExceeded) && c.expect == nil:
		return passed("no reply, and no ICMP error in %s", since(start))
	}
	return failed("%s", reason(ctx, err))
}
