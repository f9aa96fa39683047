// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"imbang/internal/model"
)

// Agent connects to a program on the server, which says how the server is, by
// HAProxy's agent-check protocol (HAProxy configuration manual, agent-check).
type Agent struct {
	Send string `yaml:"send" jsonschema_description:"text to send after connecting, as HAProxy's agent-send; default none"`
}

const maxAgentLine = 1024 // [bytes]

// Problems implements Spec.
func (c *Agent) Problems() []Problem { return nil }

// Checker implements Spec.
func (c *Agent) Checker() (Checker, error) { return *c, nil }

// Check implements Checker.
func (c Agent) Check(ctx context.Context, t Target) Result {
	start := time.Now()
	conn, err := (Target{Addr: t.Addr}).dial(expectGreeting(ctx))
	if err != nil {
		return failed("%s", reason(ctx, err))
	}
	defer hangUp(conn)
	defer bound(ctx, conn)()
	if err := send(conn, c.Send); err != nil {
		return failed("%s", reason(ctx, err))
	}
	line, err := agentLine(conn)
	if err != nil {
		return failed("%s", reason(ctx, err))
	}
	r, err := parseAgent(line)
	if err != nil {
		return failed("%v", err)
	}
	r.Detail = printable(fmt.Sprintf("agent: %s in %s", line, since(start)))
	return r
}

// agentLine reads up to the end of a line or of the connection.
func agentLine(r io.Reader) (string, error) {
	var line []byte
	for one := make([]byte, 1); ; {
		n, err := r.Read(one)
		if n == 1 {
			if one[0] == '\n' || one[0] == '\r' {
				break
			}
			line = append(line, one[0])
		}
		if len(line) > maxAgentLine {
			return "", fmt.Errorf("the agent's line is longer than %d bytes", maxAgentLine)
		}
		if errors.Is(err, io.EOF) && len(line) > 0 {
			break
		}
		if err != nil {
			return "", err
		}
	}
	return strings.TrimSpace(string(line)), nil
}

// parseAgent reads what an agent says: words between spaces, tabs and commas, and behind #
// the reason of a failure.
func parseAgent(line string) (Result, error) {
	text, _, _ := strings.Cut(line, "#")
	r := Result{OK: true}
	words := strings.FieldsFunc(text, func(c rune) bool { return c == ' ' || c == '\t' || c == ',' })
	if len(words) == 0 {
		return r, errors.New("the agent says nothing")
	}
	for _, w := range words {
		switch lower := strings.ToLower(w); {
		case lower == "up":
			r.OK = true
		case lower == "down", lower == "stopped", lower == "fail":
			r.OK = false
		case lower == "drain":
			r.Command = Drain
		case lower == "maint":
			r.Command = Maintenance
		case lower == "ready":
			r.Command = Ready
		case strings.HasSuffix(lower, "%"):
			n, err := strconv.ParseUint(strings.TrimSuffix(lower, "%"), 10, 16)
			if err != nil {
				return r, fmt.Errorf("the agent says %.40q: want a share such as 50%%", w)
			}
			r.Withheld, r.HasShare = model.Leaves(int(n), 100), true
		case strings.HasPrefix(lower, "maxconn:"): // HAProxy's own limit, not known here
		default:
			return r, fmt.Errorf("the agent says %.40q: want up, down, stopped, fail, ready, drain, maint or a share such as 50%%", w)
		}
	}
	return r, nil
}
