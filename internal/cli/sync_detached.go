// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	synchronize "imbang/internal/daemon/sync"
	"imbang/internal/daemon/sync/running"
)

const (
	// detachedFlag of imbang sync is for startDetached.
	detachedFlag = "detached"
	// outcomeFD is the pipe of imbang sync --detached.
	outcomeFD = 3
	// startPatience is how long a started role may take to open its sockets.
	startPatience = 10 * time.Second
)

// outcome is what imbang sync --detached reports, one JSON object: what its configuration
// came to.
type outcome struct {
	Ready bool          `json:"ready"`
	Error string        `json:"error,omitempty"`
	Errno syscall.Errno `json:"errno,omitempty"` // that the kernel gave
	Runs  bool          `json:"runs,omitempty"`  // the role runs already
}

// err is why a role was not started, as package perform has it.
func (o outcome) err() error {
	switch {
	case o.Ready:
		return nil
	case o.Runs:
		return &refusal{o.Error, &running.Runs{}}
	case o.Errno != 0:
		return &refusal{o.Error, o.Errno}
	}
	return errors.New(o.Error)
}

// refusal is an error of another process.
type refusal struct {
	text string
	as   error
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.as }

// outcomeTo is where a started process reports, once.
type outcomeTo struct{ file *os.File }

func outcomePipe() *outcomeTo {
	syscall.CloseOnExec(outcomeFD)
	return &outcomeTo{os.NewFile(outcomeFD, "outcome")}
}

func (o *outcomeTo) ready() { o.report(outcome{Ready: true}) }

// failed reports an error, unless the role was ready before.
func (o *outcomeTo) failed(err error) {
	if err == nil {
		return
	}
	report := outcome{Error: err.Error(), Runs: errors.As(err, new(*running.Runs))}
	_ = errors.As(err, &report.Errno)
	o.report(report)
}

func (o *outcomeTo) report(r outcome) {
	if o.file == nil {
		return
	}
	_ = json.NewEncoder(o.file).Encode(r) // the process that started it may have ended
	o.file.Close()
	o.file = nil
}

// startDetached starts imbang sync in a session of its own, without terminal, with its
// log in the directory of the network namespace, and waits until its sockets are open or
// it failed. It returns the process id.
func startDetached(dir string, c synchronize.Config) (pid int, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, fmt.Errorf("start a process: %w", err)
	}
	log, err := os.OpenFile(logFile(dir, string(c.Role)), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return 0, fmt.Errorf("start a process: %w", err)
	}
	defer log.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("start a process: %w", err)
	}
	defer read.Close()
	p := exec.Command(thisProgram(), syncArgs(c)...)
	p.Args[0] = "imbang" // this process may be called ipvsadm
	p.Dir = "/"
	p.Stderr = log
	p.ExtraFiles = []*os.File{write}
	p.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	p.Env = withoutNotify(os.Environ())
	err = p.Start()
	write.Close()
	if err != nil {
		return 0, fmt.Errorf("start a process: %w", err)
	}
	_ = read.SetReadDeadline(time.Now().Add(startPatience))
	var o outcome
	if err := json.NewDecoder(read).Decode(&o); err != nil {
		_ = p.Process.Kill()
		_ = p.Wait()
		what := "ended without a report"
		if errors.Is(err, os.ErrDeadlineExceeded) {
			what = fmt.Sprintf("did not open its sockets within %v, and was ended", startPatience)
		}
		return 0, fmt.Errorf("process %d (imbang sync %s) %s; its log is %s", p.Process.Pid, c.Role, what, log.Name())
	}
	if err := o.err(); err != nil {
		_ = p.Wait() // it ends
		return 0, err
	}
	pid = p.Process.Pid
	return pid, p.Process.Release()
}

// thisProgram is the path of this program: by its own name, which process listings show, or
// by the kernel's if it was removed.
func thisProgram() string {
	if path, err := os.Executable(); err == nil {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return "/proc/self/exe"
}

// logFile is where a started process logs.
func logFile(dir, role string) string { return filepath.Join(dir, "sync-"+role+".log") }

// syncArgs are the arguments of imbang sync; zero values are left out.
func syncArgs(c synchronize.Config) []string {
	args := []string{"sync", string(c.Role), "--" + detachedFlag, "--interface=" + c.Interface, "--sync-id=" + strconv.Itoa(int(c.SyncID))}
	if c.Group.IsValid() {
		args = append(args, "--group="+c.Group.String())
	}
	for _, f := range []struct {
		flag string
		n    int
	}{{"port", int(c.Port)}, {"ttl", int(c.TTL)}, {"max-length", c.MaxLen}} {
		if f.n != 0 {
			args = append(args, "--"+f.flag+"="+strconv.Itoa(f.n))
		}
	}
	return args
}

// withoutNotify is an environment without systemd's socket, which is for the process that
// systemd started.
func withoutNotify(environment []string) (kept []string) {
	for _, v := range environment {
		if !strings.HasPrefix(v, "NOTIFY_SOCKET=") {
			kept = append(kept, v)
		}
	}
	return kept
}
