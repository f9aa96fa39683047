// SPDX-License-Identifier: Apache-2.0

// Package tool makes load with other people's programs: httperf, ab, siege and
// wrk. It builds their commands from the plan that the lab's own generator
// takes, runs them in a client's network namespace, and fills in the same
// result as far as they tell.
//
// What of a plan a tool cannot do is refused, naming the option, unless it
// leaves the load what it was: then the result's caveats say so. Nothing is
// imitated. What a tool does not say is named in the result's Absent.
//
// The package does not read the tools' output itself: it is handed a Parse.
//
// Files:
//
//	tool.go     the tools, and running one
//	able.go     what of a plan each can do
//	command.go  their commands
//	result.go   what they said as a load.Result
//	ping.go     ICMP echo requests, which need no program
package tool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"imbang/internal/lab/load"
)

// Tool is one program.
type Tool struct {
	Name string
	pkg  string // Debian's package
	able able
	// command is its arguments; files it needs go into a directory.
	command func(p *job, dir string) ([]string, error)
}

// tools in the order in which they are listed to people.
var tools = []Tool{
	{"httperf", "httperf", httperfAble, httperfCommand},
	{"ab", "apache2-utils", abAble, abCommand},
	{"siege", "siege", siegeAble, siegeCommand},
	{"wrk", "wrk", wrkAble, wrkCommand},
}

// Names lists the tools.
func Names() (list []string) {
	for _, t := range tools {
		list = append(list, t.Name)
	}
	return list
}

// New is the tool of a name.
func New(name string) (Tool, error) {
	for _, t := range tools {
		if t.Name == name {
			return t, nil
		}
	}
	return Tool{}, fmt.Errorf("tool %q: want one of %s", name, strings.Join(Names(), ", "))
}

// Find is where the tool is installed.
func (t Tool) Find() (string, error) {
	path, err := exec.LookPath(t.Name)
	if err != nil {
		return "", fmt.Errorf("%s is not installed: apt install %s", t.Name, t.pkg)
	}
	return path, nil
}

// Check reports the first thing of a plan that the tool cannot do.
func (t Tool) Check(p load.Plan) error {
	_, err := t.job(p)
	return err
}

// Run makes the load of a plan. Its warm-up is a run of its own, whose output
// is dropped.
func (t Tool) Run(ctx context.Context, p load.Plan, parse Parse) (*load.Result, error) {
	path, err := t.Find()
	if err != nil {
		return nil, err
	}
	j, err := t.job(p)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "imbang-tool")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Name, err)
	}
	defer os.RemoveAll(dir)
	if p.Warmup > 0 {
		if _, err := t.once(ctx, path, j.warmup(), dir); err != nil {
			return nil, fmt.Errorf("%s: warm-up: %w", t.Name, err)
		}
	}
	began := time.Now()
	ran, err := t.once(ctx, path, j, dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Name, err)
	}
	out, err := parse(bytes.NewReader(ran.output), t.Name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Name, err)
	}
	return t.result(j, out, ran, began), nil
}

// ran is one run of a program.
type ran struct {
	output []byte // standard output and error
	wall   time.Duration
	cpu    time.Duration
}

// once runs the tool in the client's namespace and waits for it.
func (t Tool) once(ctx context.Context, path string, j *job, dir string) (r ran, err error) {
	args, err := t.command(j, dir)
	if err != nil {
		return r, err
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = &out, &out, dir
	// The decimal point of the tools' output follows the locale, and siege
	// keeps its settings at home.
	cmd.Env = append(os.Environ(), "LC_ALL=C", "HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	began := time.Now()
	// Started and awaited on one thread: the signal above comes when the
	// thread that started it ends.
	err = load.InNamespace(j.Clients[0].Namespace, cmd.Run)
	r = ran{output: out.Bytes(), wall: time.Since(began)}
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && t.able.fails {
		err = nil // it says how many requests failed, and the exit says that some did
	}
	if err != nil {
		return r, fmt.Errorf("%w: %s", err, complaint(out.Bytes()))
	}
	r.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return r, nil
}

// complaint is the last line that a tool wrote.
func complaint(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// write makes a file in the run's directory.
func write(dir, name, text string) (string, error) {
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, []byte(text), 0o600)
}
