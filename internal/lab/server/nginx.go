// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"imbang/internal/host"
	"imbang/internal/lab/process"
	"imbang/internal/lab/study"
)

// lookNginx finds the one program that users must install.
func lookNginx() (string, error) {
	path, err := process.Look("nginx", "apt install nginx-light")
	if err != nil {
		return "", errors.New("nginx, which plays the real servers, is not installed: apt install nginx-light")
	}
	return path, nil
}

// NginxVersion is the version of nginx, such as 1.22.1.
func NginxVersion(ctx context.Context) (string, error) {
	path, err := lookNginx()
	if err != nil {
		return "", err
	}
	return process.VersionOf(ctx, path, "-v")
}

// nginx is one running nginx.
type nginx struct {
	name string
	spec study.Server
	page int // its size [bytes]

	dir     string
	start   func() error
	process *process.Process
}

// startNginx starts nginx with its configuration and page in a directory of its
// own below dir.
func startNginx(ns *host.Namespace, name string, spec study.Server, dir string) (*nginx, error) {
	path, err := lookNginx()
	if err != nil {
		return nil, err
	}
	n := &nginx{name: name, spec: spec, page: spec.Page, dir: filepath.Join(dir, name)}
	if spec.Content != "" {
		page, err := os.ReadFile(filepath.Join(spec.Content, "index.html"))
		if err != nil {
			return nil, fmt.Errorf("real server %s: content: %w", name, err)
		}
		n.page = len(page)
	}
	if err := n.write(); err != nil {
		return nil, fmt.Errorf("real server %s: %w", name, err)
	}
	n.start = func() (err error) {
		cmd := exec.Command(path, "-p", n.dir, "-c", filepath.Join(n.dir, "nginx.conf"), "-e", filepath.Join(n.dir, "error.log"))
		n.process, err = process.Start(ns, cmd)
		return err
	}
	if err := n.start(); err != nil {
		return nil, fmt.Errorf("real server %s: %w", name, err)
	}
	return n, nil
}

func (n *nginx) Name() string { return n.name }

func (n *nginx) Stop() { n.process.Stop() }

func (n *nginx) Do(f study.Fault) error { return suffer(f, n.process, n.start) }

// PIDs lists the master and its worker, whose CPU time is the server's.
func (n *nginx) PIDs() ([]int, error) {
	pids, err := n.process.PIDs()
	if err == nil && len(pids) < 2 {
		err = fmt.Errorf("real server %s has no worker: %s", n.name, n.complaint())
	}
	return pids, err
}

// complaint is what the server's own log says: its first fatal line, which
// names the cause, or else the last line.
func (n *nginx) complaint() string {
	lines := process.Said(filepath.Join(n.dir, "error.log"))
	for _, l := range lines {
		if strings.Contains(l, "[emerg]") {
			return l
		}
	}
	return last(lines)
}

// last is the last line of a server's log.
func last(lines []string) string { return cmp.Or(lines[len(lines)-1], "its error log is empty") }
