// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"imbang/internal/model"
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
	if errors.As(err, new(user.UnknownUserError)) {
		return nil, fmt.Errorf("there is no user %s: create it, or correct the user of the script", c.User)
	}
	if err != nil {
		return nil, fmt.Errorf("user: %w", err)
	}
	s.credential, err = credentialOf(u)
	s.home, s.user = u.HomeDir, c.User
	return s, err
}

// HasUser reports whether this machine has a user. It is true if that cannot be found out.
func HasUser(name string) bool {
	_, err := user.Lookup(name)
	return !errors.As(err, new(user.UnknownUserError))
}

// Obstacle is why the script cannot be run on this machine, with the remedy, as far as this process
// can see; "": nothing is found.
func (c *Script) Obstacle() string {
	made, err := c.Checker()
	if err != nil {
		return err.Error()
	}
	s := made.(scriptChecker)
	return asUser(s.credential, s.user).obstacle(c.Command)
}

// RootsObstacle is the same of a command that root runs.
func RootsObstacle(command []string) string { return executor{name: "root"}.obstacle(command) }

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

type scriptChecker struct {
	command    []string
	dynamic    bool
	credential *syscall.Credential
	home       string
	user       string
}

// Check implements Checker. To become another user takes the capabilities away (
// capabilities(7)): none are ambient or inheritable.
func (s scriptChecker) Check(ctx context.Context, t Target) Result {
	start, memoryKills := time.Now(), killsForMemory()
	c, out, err := s.run(ctx, t)
	if c.Process != nil {
		return s.result(ctx, err, c, out, start, memoryKills)
	}
	as := asUser(s.credential, s.user)
	obstacle := as.obstacle(s.command)
	if obstacle == "" && errors.Is(err, fs.ErrNotExist) { // it was just installed, or its interpreter is missing
		if c, out, err = s.run(ctx, t); c.Process != nil {
			return s.result(ctx, err, c, out, start, memoryKills)
		}
		obstacle = as.obstacle(s.command)
	}
	return notStarted(s.command, reason(ctx, err), err, obstacle)
}

// run executes the script, and ends what that leaves behind.
func (s scriptChecker) run(ctx context.Context, t Target) (c *exec.Cmd, out *lastBytes, err error) {
	c = exec.CommandContext(ctx, s.command[0], s.command[1:]...)
	c.Dir = "/"
	c.Env = []string{
		"PATH=" + SearchPath, "LANG=C.UTF-8", "HOME=" + s.home,
		"IMBANG_SERVER_ADDRESS=" + t.Addr.Addr().String(), "IMBANG_SERVER_PORT=" + strconv.Itoa(int(t.Addr.Port())),
	}
	if t.Virtual.IsValid() {
		c.Env = append(c.Env, "IMBANG_VIRTUAL_ADDRESS="+t.Virtual.Addr().String(), "IMBANG_VIRTUAL_PORT="+strconv.Itoa(int(t.Virtual.Port())))
	}
	out = &lastBytes{}
	c.Stdout, c.Stderr = out, out
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: s.credential}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = 100 * time.Millisecond
	err = c.Run()
	if c.Process != nil { // what it left running in its process group
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	}
	return c, out, err
}

func (s scriptChecker) result(ctx context.Context, err error, c *exec.Cmd, out *lastBytes, start time.Time, memoryKills uint64) Result {
	said := out.line()
	if said != "" {
		said = ": " + said
	}
	var exited *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return failed("timeout: killed%s", said)
	case err == nil || errors.Is(err, exec.ErrWaitDelay) && c.ProcessState.Success():
		return passed("exit status 0 in %s%s", since(start), said)
	case !errors.As(err, &exited):
		return failed("%s", reason(ctx, err))
	case exited.ExitCode() < 0:
		return killed(exited, said, memoryKills)
	}
	as := asUser(s.credential, s.user)
	text := as.unreadable(s.command[0])
	if text == "" && slices.Contains(unfoundStatuses, exited.ExitCode()) {
		text = as.uninterpretable(s.command)
	}
	if text != "" {
		return failed("exit status %d: %s", exited.ExitCode(), cause{text, true})
	}
	return s.status(exited.ExitCode(), start, said)
}

// killed is the result of a script that a signal ended. A script gets SIGKILL also from itself, as from
// timeout -s KILL for a server that does not answer, so only a lack of memory that the kernel counts is
// of this machine.
func killed(exited *exec.ExitError, said string, memoryKills uint64) Result {
	why := cause{text: exited.String()}
	if w, ok := exited.Sys().(syscall.WaitStatus); ok && w.Signal() == syscall.SIGKILL && killsForMemory() != memoryKills {
		why = cause{why.text + ", for lack of memory", true}
	}
	return failed("%s%s", why, said)
}

// killsForMemory is how many processes this machine has killed for lack of memory, also of a control
// group's; 0: not known.
func killsForMemory() uint64 {
	text, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(text), "\noom_kill ")
	digits, _, _ := strings.Cut(after, "\n")
	n, _ := strconv.ParseUint(digits, 10, 64)
	return n
}

// status is the result of an exit status that is not 0.
func (s scriptChecker) status(status int, start time.Time, said string) Result {
	if !s.dynamic || status == 1 {
		return failed("exit status %d%s", status, said)
	}
	r := passed("exit status %d in %s%s", status, since(start), said)
	r.Withheld, r.HasShare = model.Leaves(status-2, 253), true
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
