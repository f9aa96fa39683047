// SPDX-License-Identifier: Apache-2.0

// Package process runs other people's programs in the namespaces of a cluster,
// and takes them down again whatever happens.
package process

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/host"
)

// Process is a running program with the processes that it starts.
type Process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has been reaped
}

// Start starts a command in a namespace.
func Start(ns *host.Namespace, cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, ended: make(chan struct{})}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid: true, // Ctrl-C is for the lab, which stops its programs itself
		// Should the lab be killed, the program ends with it.
		Pdeathsig: syscall.SIGTERM,
	}
	started := make(chan error)
	go func() {
		// The parent-death signal follows the thread that forked, so it
		// lives as long as the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := ns.Start(cmd)
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Signal sends a signal to the process and those that it started.
func (p *Process) Signal(sig syscall.Signal) error {
	// The process is not reaped before ended is closed, so the number is ours.
	select {
	case <-p.ended:
		return os.ErrProcessDone
	default:
		return unix.Kill(-p.cmd.Process.Pid, sig)
	}
}

// Stop ends the process with those that it started: at once, as no connection
// of interest is left. It is idempotent.
func (p *Process) Stop() {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if p.Signal(sig) == os.ErrProcessDone {
			return
		}
		_ = p.Signal(syscall.SIGCONT) // a stopped one does not hear
		select {
		case <-p.ended:
		case <-time.After(2 * time.Second):
		}
	}
}

// PIDs lists the process first and those that it started.
func (p *Process) PIDs() ([]int, error) {
	leader := p.cmd.Process.Pid
	pids := []int{leader}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == leader {
			continue
		}
		if group, err := unix.Getpgid(pid); err == nil && group == leader {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
