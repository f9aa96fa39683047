// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"imbang/internal/host"
	"imbang/internal/lab/process"
	"imbang/internal/lab/study"
)

// builtIn is one running server of package serve, a process of imbang-lab.
type builtIn struct {
	name, log string
	spec      study.Server
	start     func() error

	process  *process.Process
	commands io.WriteCloser
}

// startBuiltIn starts imbang-lab as a real server. Applications share one
// database in dir.
func startBuiltIn(ns *host.Namespace, name string, spec study.Server, dir, executable string) (*builtIn, error) {
	b := &builtIn{name: name, spec: spec, log: filepath.Join(dir, name+".log")}
	b.start = func() error { return b.run(ns, executable, arguments(name, spec, dir)) }
	if err := b.start(); err != nil {
		return nil, fmt.Errorf("real server %s: %w", name, err)
	}
	return b, nil
}

// arguments are those of `imbang-lab serve`.
func arguments(name string, spec study.Server, dir string) []string {
	args := []string{"serve", "--name", name, "--listen", fmt.Sprintf(":%d", Port), "--header", Header}
	if spec.Kind == study.API {
		return append(args, "--database", filepath.Join(dir, "application.db"))
	}
	return append(args,
		"--law", spec.Distribution, "--service", spec.Service.String(), "--concurrency", strconv.Itoa(spec.Concurrency),
		"--backlog", strconv.Itoa(spec.Backlog), "--speed", strconv.FormatFloat(spec.Speed, 'g', -1, 64),
		"--page", strconv.Itoa(spec.Page), "--hashes", strconv.Itoa(spec.Hashes), "--seed", strconv.FormatUint(seed(name), 10))
}

// seed is a server's own: servers of one seed would have the same service
// times in the same order.
func seed(name string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, name)
	return h.Sum64()
}

func (b *builtIn) run(ns *host.Namespace, executable string, args []string) error {
	log, err := os.Create(b.log)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(executable, args...)
	cmd.Stderr = log
	if b.commands, err = cmd.StdinPipe(); err != nil {
		return err
	}
	b.process, err = process.Start(ns, cmd)
	return err
}

func (b *builtIn) Name() string { return b.name }

func (b *builtIn) WaitReady(ctx context.Context, from *host.Namespace, target netip.AddrPort) error {
	return waitReady(ctx, from, target, b.name, b.process, b.complaint, func(r reply) error {
		if b.spec.Kind == study.API && r.server == b.name && r.status == http.StatusOK {
			return nil // its replies have no stated size
		}
		return r.check(b.name, b.spec.Page)
	})
}

// complaint is what the server said last.
func (b *builtIn) complaint() string {
	return last(process.Said(b.log))
}

func (b *builtIn) PIDs() ([]int, error) { return b.process.PIDs() }
func (b *builtIn) Stop()                { b.process.Stop() }

func (b *builtIn) Do(f study.Fault) error {
	if f.Do == "slow" {
		_, err := fmt.Fprintf(b.commands, "speed %g\n", b.spec.Speed/f.Factor)
		return err
	}
	return suffer(f, b.process, b.start)
}

// suffer does to a process what can be done to any. Starting again gives it
// back what it had at first.
func suffer(f study.Fault, p *process.Process, start func() error) error {
	switch f.Do {
	case "kill":
		return p.Signal(syscall.SIGKILL)
	case "pause":
		return p.Signal(syscall.SIGSTOP)
	case "resume":
		return p.Signal(syscall.SIGCONT)
	case "start":
		select {
		case <-p.Ended():
			return start()
		default:
			return nil // it runs
		}
	}
	return fmt.Errorf("a fault called %s", f.Do)
}
