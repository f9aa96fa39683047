// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/measure"
	"imbang/internal/lab/process"
)

// proxy is a program that ends the clients' connections and makes its own to
// the servers. What differs from one to the next is in the fields.
type proxy struct {
	name       string
	program    string
	remedy     string
	version    []string // arguments that make it say its version
	schedulers map[string]string
	// config is the whole configuration; scheduler is a value of schedulers.
	config func(s Setup, scheduler string) string
	// arguments run it in the foreground with a configuration file.
	arguments func(file, dir string) []string
	// missing, which may be nil, says what else it lacks.
	missing func() error
}

func (p *proxy) Name() string         { return p.name }
func (p *proxy) Balances() bool       { return true }
func (p *proxy) Schedulers() []string { return names(p.schedulers) }

func (p *proxy) Version(ctx context.Context) (string, error) {
	path, err := process.Look(p.program, p.remedy)
	if err != nil {
		return "", err
	}
	if p.missing != nil {
		if err := p.missing(); err != nil {
			return "", err
		}
	}
	return process.VersionOf(ctx, path, p.version...)
}

func (p *proxy) Configuration(s Setup) (string, error) {
	scheduler, err := known(p.name, p.schedulers, s.Scheduler)
	if err != nil {
		return "", err
	}
	return p.config(s, scheduler), nil
}

func (p *proxy) Start(ctx context.Context, s Setup) (Instance, error) {
	text, err := p.Configuration(s)
	if err != nil {
		return nil, err
	}
	path, err := process.Look(p.program, p.remedy)
	if err != nil {
		return nil, err
	}
	if err := s.writeCertificate(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(s.Dir, p.name+"-")
	if err != nil {
		return nil, err
	}
	file, log := filepath.Join(dir, "config"), filepath.Join(dir, "log")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(path, p.arguments(file, dir)...)
	if cmd.Stderr, err = os.Create(log); err != nil {
		return nil, err
	}
	started, err := process.Start(s.Cluster.Director, cmd)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	i := &proxyInstance{started, s.targets(), dir, log}
	if err := i.wait(ctx, s.Cluster.Director); err != nil {
		_ = i.Stop(ctx)
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	return i, nil
}

type proxyInstance struct {
	*process.Process
	targets
	dir, log string
}

// wait returns when the proxy accepts connections.
func (i *proxyInstance) wait(ctx context.Context, ns *host.Namespace) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		err := ns.Do(func() error {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", i.targets[0].String())
			if err == nil {
				c.Close()
			}
			return err
		})
		if err == nil {
			return nil
		}
		select {
		case <-i.Ended():
			return fmt.Errorf("it ended at once: %s", i.complaint())
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), fmt.Errorf("it does not answer at %s: %s", i.targets[0], i.complaint()))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// complaint is the last that the program said.
func (i *proxyInstance) complaint() string {
	lines := process.Said(i.log)
	return lines[len(lines)-1]
}

// CPU is the time of the proxy's processes. What the kernel does for them in
// its own context, such as packets of other connections, may be in it.
func (i *proxyInstance) CPU(context.Context) (CPU, error) {
	pids, err := i.PIDs()
	if err != nil {
		return CPU{}, err
	}
	c := CPU{Known: true}
	for _, pid := range pids {
		t, err := measure.ProcessTime(pid)
		if err != nil {
			return CPU{}, err
		}
		c.Time += t
	}
	return c, nil
}

func (i *proxyInstance) Stop(context.Context) error {
	i.Process.Stop()
	return os.RemoveAll(i.dir)
}
