// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"imbang/internal/daemon/l7"
)

// Check has HAProxy check a configuration: it renders it into a directory of its own, as it
// would be rendered into Options.Directory. The error has a line for each fault, with the
// object and what HAProxy says; warnings are what it says of a configuration that it accepts. It is a
// *Refusal if that is why HAProxy does not accept it, and not that the check could not be made.
func Check(ctx context.Context, program string, c *l7.Config, states l7.States, o Options) (warnings []string, err error) {
	dir, err := os.MkdirTemp(o.Temporary, "imbang-haproxy-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	o.Directory = dir
	rendered, err := Render(c, states, o)
	if err != nil {
		return nil, err
	}
	if err := rendered.Write(dir); err != nil {
		return nil, err
	}
	main := filepath.Join(dir, ConfigFile)
	cmd := exec.CommandContext(ctx, program, "-c", "-f", main)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s -c has not ended in time: %w", program, ctx.Err())
	}
	var status *exec.ExitError
	if err != nil && !errors.As(err, &status) {
		return nil, notRun(program, "-c", err, "")
	}
	alerts, warnings := rendered.Explain(out.String(), main)
	if err == nil {
		return warnings, nil
	}
	if len(alerts) == 0 {
		return nil, fmt.Errorf("%s -c: %w: HAProxy: %s", program, err, strings.TrimSpace(out.String()))
	}
	var errs []error
	for _, a := range alerts {
		errs = append(errs, errors.New(a))
	}
	return warnings, &Refusal{errors.Join(errs...)}
}

// Refusal is the error of a configuration that HAProxy does not accept.
type Refusal struct{ error }

// Unwrap returns the error for each fault.
func (r *Refusal) Unwrap() error { return r.error }

// Write writes the files into a directory, readable by their owner alone.
func (r *Rendered) Write(dir string) error {
	for _, f := range r.Files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), []byte(f.Text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

var (
	messageLine  = regexp.MustCompile(`^\[(ALERT|WARNING|NOTICE)\]\s+(?:\([0-9]+\)\s+)?: (.*)$`)
	messagePlace = regexp.MustCompile(`^(?:config : )?(?:(?:parsing )?\[(.*?):([0-9]+)\] ?: ?)?(.*)$`)
	messageProxy = regexp.MustCompile(`^(?:Proxy|frontend|backend|proxy) '([^']+)'`)
	messagePair  = regexp.MustCompile(`^'server ([^/' ]+)/([^' ]+)' ?: ?`)
	pluralOnly   = regexp.MustCompile(`^(Error\(s\) found in configuration file|Fatal errors found in configuration)`)
)

// Explain translates what `haproxy -c` prints: of each message the object that it is for, by
// the line of the file, else by the proxy that it names.
func (r *Rendered) Explain(out, main string) (alerts, warnings []string) {
	var into *[]string
	before := ""
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\n")
		m := messageLine.FindStringSubmatch(line)
		if m == nil {
			if s := strings.TrimSpace(line); into != nil && strings.HasPrefix(line, " ") && s != "" {
				(*into)[len(*into)-1] += " " + s // the message goes on
			} else {
				into = nil
			}
			continue
		}
		into = nil
		message, origin := r.explain(m[2], main, before)
		before = origin
		switch {
		case message == "":
		case m[1] == "ALERT":
			into = &alerts
		case m[1] == "WARNING":
			into = &warnings
		}
		if into != nil {
			*into = append(*into, message)
		}
	}
	return alerts, warnings
}

// explain is one message, with its object; before is that of the message before it.
func (r *Rendered) explain(message, main, before string) (explained, origin string) {
	m := messagePlace.FindStringSubmatch(message)
	path, number, rest := m[1], m[2], m[3]
	if pluralOnly.MatchString(rest) {
		return "", ""
	}
	if path == main {
		n, _ := strconv.Atoi(number)
		origin = r.Origin(n)
	}
	if origin == "" {
		if p := messagePair.FindStringSubmatch(rest); p != nil {
			origin, rest = fmt.Sprintf("backend %s, server %s", p[1], p[2]), rest[len(p[0]):]
		} else if p := messageProxy.FindStringSubmatch(rest); p != nil {
			origin = r.proxy(p[1])
		}
	}
	if origin == "" && path == "" {
		origin = before // the sequel of that one
	}
	if origin == "" {
		origin = "proxy"
	}
	rest = strings.ReplaceAll(rest, filepath.Dir(main)+"/", "")
	return fmt.Sprintf("%s: HAProxy: %s", origin, strings.TrimRight(strings.TrimSpace(rest), ".")), origin
}

// proxy is the object of a name that a message has: a frontend's or a backend's.
func (r *Rendered) proxy(name string) string {
	for _, kind := range []string{"listener ", "backend "} {
		for _, o := range r.origins {
			if o == kind+name {
				return o
			}
		}
	}
	return ""
}
