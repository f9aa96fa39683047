// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"imbang/internal/daemon/l7/accesslog"
)

// process is HAProxy's master, a child or not.
type process struct {
	pid   int
	fd    int         // pidfd
	ended chan ending // once
}

// ending says how it ended.
type ending struct {
	why string
	// stopped: another process ended it, so that its configuration is not the cause.
	stopped bool
}

// launch starts HAProxy. Its messages are appended to a file: a pipe would end with the
// supervisor. Its standard output is the FIFO of access logs. With sockets it goes on with those that
// an earlier one has listened at.
func launch(program, dir string, sockets bool) (*process, error) {
	if err := os.MkdirAll(Root(dir), 0o555); err != nil {
		return nil, fmt.Errorf("HAProxy: %w", err)
	}
	log, err := os.OpenFile(LogFile(dir), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("HAProxy: %w", err)
	}
	defer log.Close()
	access, err := accesslog.Open(AccessLog(dir))
	if err != nil {
		return nil, err
	}
	defer access.Close()
	args := arguments(dir)
	if sockets {
		args = append([]string{"-x", SocketsSocket(dir)}, args...)
	}
	c := exec.Command(program, args...)
	c.Dir, c.Stdout, c.Stderr = "/", access, log
	c.Env = environment(os.Environ())
	// Signals of a terminal are for the supervisor.
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("HAProxy: %w: install the package haproxy", err)
		}
		return nil, fmt.Errorf("HAProxy: %w", err)
	}
	pid := c.Process.Pid
	_ = c.Process.Release() // watch waits for it
	return watch(pid)
}

// environment is that of the supervisor without what systemd tells that alone.
func environment(of []string) (kept []string) {
	for _, one := range of {
		name, _, _ := strings.Cut(one, "=")
		switch name {
		case "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES":
		default:
			kept = append(kept, one)
		}
	}
	return kept
}

// adopt goes on with a process that an earlier supervisor, or program of this one, started.
func adopt(dir string, pid int) (*process, error) {
	p, err := watch(pid)
	if err != nil {
		return nil, err
	}
	// The number may have become that of another process before watch.
	if !slices.Contains(find(dir), pid) {
		p.close()
		return nil, errors.New("HAProxy has just ended")
	}
	return p, nil
}

// watch waits for a process to end.
func watch(pid int) (*process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("HAProxy: process %d: %w", pid, err)
	}
	p := &process{pid: pid, fd: fd, ended: make(chan ending, 1)}
	go func() {
		awaitEnd(fd, forever)
		p.ended <- reap(pid)
	}()
	return p, nil
}

const forever = -1

// awaitEnd waits for the process of a pidfd to end, for a number of milliseconds or forever.
func awaitEnd(fd, limit int) {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(poll, limit); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// reap reads the status of a process that has ended, if it is a child.
func reap(pid int) ending {
	var status unix.WaitStatus
	for {
		got, err := unix.Wait4(pid, &status, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || got != pid:
			return ending{why: "ended", stopped: true} // not known
		case status.Signaled():
			s := status.Signal()
			return ending{why: "ended by " + unix.SignalName(s), stopped: s == unix.SIGKILL || s == unix.SIGTERM || s == unix.SIGINT}
		default:
			// HAProxy's master ends with that of a worker, 128 and the signal.
			n := status.ExitStatus()
			return ending{fmt.Sprintf("ended with status %d", n), n == 128+int(unix.SIGKILL) || n == 128+int(unix.SIGTERM)}
		}
	}
}

// signal sends one, to this process only, even if its number has another one by now.
func (p *process) signal(s unix.Signal) {
	_ = unix.PidfdSendSignal(p.fd, s, nil, 0)
}

func (p *process) close() { _ = unix.Close(p.fd) }
