// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/host"
)

// errMissing carries the remedy for the one thing users must install.
var errMissing = errors.New("nginx, which plays the real servers, is not installed: apt install nginx-light")

// lookNginx finds the program; distributions keep it in a directory that is
// not always on the PATH.
func lookNginx() (string, error) {
	for _, name := range []string{"nginx", "/usr/sbin/nginx", "/usr/local/sbin/nginx"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errMissing
}

var versionForm = regexp.MustCompile(`nginx/(\S+)`)

// NginxVersion is the version of nginx, such as 1.22.1.
func NginxVersion(ctx context.Context) (string, error) {
	path, err := lookNginx()
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, path, "-v").CombinedOutput()
	if m := versionForm.FindSubmatch(out); m != nil {
		return string(m[1]), nil
	}
	return "", fmt.Errorf("nginx -v says %q: %w", out, err)
}

// nginx is one running nginx.
type nginx struct {
	name string
	page int

	dir   string
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has been reaped
}

// startNginx starts nginx with its configuration and page in a directory of its
// own below dir.
func startNginx(ns *host.Namespace, name string, page int, dir string) (*nginx, error) {
	path, err := lookNginx()
	if err != nil {
		return nil, err
	}
	n := &nginx{name: name, page: page, dir: filepath.Join(dir, name), ended: make(chan struct{})}
	if err := n.write(page); err != nil {
		return nil, fmt.Errorf("real server %s: %w", name, err)
	}
	n.cmd = exec.Command(path, "-p", n.dir, "-c", filepath.Join(n.dir, "nginx.conf"), "-e", filepath.Join(n.dir, "error.log"))
	n.cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid: true, // Ctrl-C is for the lab, which stops its servers itself
		// Should the lab be killed, nginx ends with its worker.
		Pdeathsig: syscall.SIGTERM,
	}
	if err := n.run(ns); err != nil {
		return nil, fmt.Errorf("real server %s: start %s: %w", name, path, err)
	}
	return n, nil
}

func (n *nginx) Name() string { return n.name }

// run starts the process and reaps it, both on one thread that lives as long
// as the process: the parent-death signal follows the thread that forked.
func (n *nginx) run(ns *host.Namespace) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := ns.Start(n.cmd)
		started <- err
		if err == nil {
			_ = n.cmd.Wait() // how it ended is in its log
			close(n.ended)
		}
	}()
	return <-started
}

// Stop ends the server: at once, as no connection of interest is left. It is
// idempotent.
func (n *nginx) Stop() {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		// The whole group, lest a worker outlive its master. The master
		// is not reaped before ended is closed, so the number is ours.
		select {
		case <-n.ended:
			return
		default:
			_ = unix.Kill(-n.cmd.Process.Pid, sig)
		}
		select {
		case <-n.ended:
		case <-time.After(2 * time.Second):
		}
	}
}

// PIDs lists the master and its worker, whose CPU time is the server's.
func (n *nginx) PIDs() ([]int, error) {
	master := n.cmd.Process.Pid
	pids := []int{master}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == master {
			continue
		}
		// A worker stays in its master's process group.
		if group, err := unix.Getpgid(pid); err == nil && group == master {
			pids = append(pids, pid)
		}
	}
	if len(pids) < 2 {
		return nil, fmt.Errorf("real server %s has no worker: %s", n.name, n.complaint())
	}
	return pids, nil
}

// complaint is what the server's own log says: its first fatal line, which
// names the cause, or else the last line.
func (n *nginx) complaint() string {
	b, _ := os.ReadFile(filepath.Join(n.dir, "error.log"))
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	for _, l := range lines {
		if strings.Contains(l, "[emerg]") {
			return l
		}
	}
	if last := lines[len(lines)-1]; last != "" {
		return last
	}
	return "its error log is empty"
}
