// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Script runs a program: exit status 0 is a success. With dynamic, 2 to 255 also are, and
// say the weight, as keepalived's misc_dynamic: the status less 2, of 253.
type Script struct {
	Command []string `yaml:"command" jsonschema_description:"required; absolute path and arguments"`
	User    string   `yaml:"user" jsonschema_description:"user it runs as; default daemon.script_user"`
	Dynamic bool     `yaml:"dynamic" jsonschema_description:"exit status 2 to 255 is a success, and says the share of the weight: (status - 2) / 253; default false"`
}

// Problems implements Spec.
func (c *Script) Problems() (list []Problem) {
	if len(c.Command) == 0 || !strings.HasPrefix(c.Command[0], "/") {
		list = append(list, Problem{"command", "want the absolute path of a program and its arguments, such as [/usr/local/bin/check, --fast]"})
	}
	return list
}

// Checker implements Spec.
func (c *Script) Checker() (Checker, error) {
	s := scriptChecker{command: c.Command, dynamic: c.Dynamic}
	if c.User == "" {
		return s, nil
	}
	u, err := user.Lookup(c.User)
	if err != nil {
		return nil, fmt.Errorf("user: %w", err)
	}
	s.credential, err = credentialOf(u)
	s.home = u.HomeDir
	return s, err
}

func credentialOf(u *user.User) (*syscall.Credential, error) {
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	ids, err3 := u.GroupIds()
	if err := errors.Join(err, err2, err3); err != nil {
		return nil, fmt.Errorf("user %s: %w", u.Username, err)
	}
	c := &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	for _, id := range ids {
		if n, err := strconv.ParseUint(id, 10, 32); err == nil {
			c.Groups = append(c.Groups, uint32(n))
		}
	}
	return c, nil
}

// SearchPath is the environment variable PATH of scripts.
const SearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

type scriptChecker struct {
	command    []string
	dynamic    bool
	credential *syscall.Credential
	home       string
}

// Check implements Checker. To become another user takes the capabilities away (
// capabilities(7)): none are ambient or inheritable.
func (s scriptChecker) Check(ctx context.Context, t Target) Result {
	start := time.Now()
	c := exec.CommandContext(ctx, s.command[0], s.command[1:]...)
	c.Dir = "/"
	c.Env = []string{
		"PATH=" + SearchPath, "LANG=C.UTF-8", "HOME=" + s.home,
		"IMBANG_SERVER_ADDRESS=" + t.Addr.Addr().String(), "IMBANG_SERVER_PORT=" + strconv.Itoa(int(t.Addr.Port())),
	}
	if t.Virtual.IsValid() {
		c.Env = append(c.Env, "IMBANG_VIRTUAL_ADDRESS="+t.Virtual.Addr().String(), "IMBANG_VIRTUAL_PORT="+strconv.Itoa(int(t.Virtual.Port())))
	}
	out := &lastBytes{}
	c.Stdout, c.Stderr = out, out
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: s.credential}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = 100 * time.Millisecond
	err := c.Run()
	if c.Process != nil { // what it left running in its process group
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	}
	return s.result(ctx, err, c, out, start)
}

func (s scriptChecker) result(ctx context.Context, err error, c *exec.Cmd, out *lastBytes, start time.Time) Result {
	said := out.line()
	if said != "" {
		said = ": " + said
	}
	var exited *exec.ExitError
	switch {
	case c.Process == nil: // it was not started
		return failed("%s", reason(ctx, err))
	case ctx.Err() != nil:
		return failed("timeout: killed%s", said)
	case err == nil || errors.Is(err, exec.ErrWaitDelay) && c.ProcessState.Success():
		return passed("exit status 0 in %s%s", since(start), said)
	case !errors.As(err, &exited):
		return failed("%s", reason(ctx, err))
	case exited.ExitCode() < 0:
		return failed("%s%s", exited, said)
	}
	status := exited.ExitCode()
	if !s.dynamic || status == 1 {
		return failed("exit status %d%s", status, said)
	}
	r := passed("exit status %d in %s%s", status, since(start), said)
	r.Share, r.HasShare = uint8((status-2)*100/253), true
	return r
}

// lastBytes keeps the end of an output.
type lastBytes struct {
	mu   sync.Mutex
	text []byte
}

// Write is io.Writer's.
func (l *lastBytes) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	if len(l.text) > 4*maxLine {
		l.text = append([]byte{}, l.text[len(l.text)-2*maxLine:]...)
	}
	return len(p), nil
}

// line is the last line, made printable.
func (l *lastBytes) line() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := strings.TrimSpace(string(l.text))
	s = s[strings.LastIndexByte(s, '\n')+1:]
	return printable(s)
}
