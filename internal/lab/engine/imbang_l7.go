// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/measure"
	"imbang/internal/lab/process"
)

// imbangL7 is layer 7 of imbang: HAProxy with the configuration that imbang renders, under its
// supervisor, with the daemon that checks the servers.
type imbangL7 struct{ executable string }

// imbangL7Schedulers are balancing methods of a backend.
var imbangL7Schedulers = map[string]string{
	"roundrobin": "roundrobin", "leastconn": "leastconn", "source": "source", "uri": "uri", "random": "random",
}

func (*imbangL7) Name() string         { return "imbang-l7" }
func (*imbangL7) Balances() bool       { return true }
func (*imbangL7) Schedulers() []string { return names(imbangL7Schedulers) }

// Version is HAProxy's: the rest is this program.
func (*imbangL7) Version(ctx context.Context) (string, error) {
	path, err := process.Look("haproxy", "apt install haproxy")
	if err != nil {
		return "", err
	}
	return process.VersionOf(ctx, path, "-v")
}

// Configuration is imbang.yaml, tuned by raw lines as engine haproxy-http is: connections to servers are reused
// (see haproxyReuse), and replies spliced (see haproxyConfig), as the how-to "HTTPS in front of three servers" has it.
func (e *imbangL7) Configuration(s Setup) (string, error) {
	balance, err := known(e.Name(), imbangL7Schedulers, s.Scheduler)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	// Nothing goes on from the last instance of this namespace.
	fmt.Fprintf(&b, "daemon: {max_removed: 100 %%}\nproxy: {max_connections: %d, fallback: 0 s}\n", connections())
	secure := ""
	if s.TLS {
		secure = fmt.Sprintf(", {name: secure, bind: [%q], tls: {certificates: [%s]}, backend: web}", s.listenTLS().String(), s.certificate())
	}
	fmt.Fprintf(&b, "listeners: [{name: web, bind: [%q], backend: web}%s]\n", s.listen().String(), secure)
	fmt.Fprintf(&b, "backends:\n  - name: web\n    balance: %s\n    raw: [%s, option splice-response]\n    servers:\n", balance, strings.TrimSpace(haproxyReuse))
	for i, at := range s.backends() {
		fmt.Fprintf(&b, "      - {name: %s, address: %q, weight: %d}\n", s.Servers[i].Name, at.String(), s.Weights[i])
	}
	return b.String(), nil
}

func (e *imbangL7) Start(ctx context.Context, s Setup) (Instance, error) {
	text, err := e.Configuration(s)
	if err != nil {
		return nil, err
	}
	if err := s.writeCertificate(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(s.Dir, e.Name()+"-")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "imbang.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	i := &imbangL7Instance{targets: s.targets(), engine: e, ns: s.Cluster.Director, dir: dir}
	for _, args := range [][]string{{"run", "-c", file, "--state", filepath.Join(dir, "state")}, {"proxy", "-c", file, "--grace", "0s"}} {
		if err == nil {
			err = i.start(args...)
		}
	}
	if err == nil {
		err = i.wait(ctx)
	}
	if err != nil {
		_ = i.Stop(context.WithoutCancel(ctx))
		return nil, fmt.Errorf("%s: %w", e.Name(), err)
	}
	return i, nil
}

type imbangL7Instance struct {
	targets
	engine  *imbangL7
	ns      *host.Namespace
	dir     string
	running []*process.Process // the daemon, then the supervisor
	haproxy []int              // processes
}

func (i *imbangL7Instance) start(args ...string) error {
	cmd := exec.Command(i.engine.executable, args...)
	log, err := os.Create(filepath.Join(i.dir, args[0]+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stderr = log
	p, err := process.Start(i.ns, cmd)
	if err == nil {
		i.running = append(i.running, p)
	}
	return err
}

// proxyStatus is the part of `imbang proxy status --output json` that is needed here.
type proxyStatus struct {
	Phase   string `json:"phase"`
	HAProxy int    `json:"haproxy"`
	Workers []int  `json:"workers"`
	Reloads int    `json:"reloads"`
}

// says is the JSON that a command of imbang's prints.
func (i *imbangL7Instance) says(ctx context.Context, v any, args ...string) error {
	out, err := command(ctx, i.ns, "imbang", i.engine.executable, "", append(args, "--output", "json")...)
	if err != nil {
		return err
	}
	return json.Unmarshal(out, v)
}

// look finds HAProxy's processes once they are those that stay, and accept connections.
func (i *imbangL7Instance) look(ctx context.Context) error {
	var s proxyStatus
	if err := i.says(ctx, &s, "proxy", "status"); err != nil {
		return err
	}
	if s.Phase != "running" {
		return errors.New("HAProxy does not run yet")
	}
	// The supervisor may have been first, and have started HAProxy as it was in this namespace before: then
	// the daemon has it reload, which ends the worker. A reload of the daemon's own returns when that is over.
	var followed struct {
		Warnings []string `json:"warnings"`
	}
	if err := i.says(ctx, &followed, "reload"); err != nil {
		return err
	}
	if len(followed.Warnings) > 0 {
		return errors.New(followed.Warnings[0])
	}
	if err := i.says(ctx, &s, "proxy", "status"); err != nil {
		return err
	}
	if len(s.Workers) == 0 {
		return errors.New("HAProxy has no worker yet")
	}
	i.haproxy = append([]int{s.HAProxy}, s.Workers...)
	return i.ns.Do(func() error {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", i.targets[0].String())
		if err == nil {
			c.Close()
		}
		return err
	})
}

// wait returns when HAProxy runs with what the daemon has rendered, and accepts connections.
func (i *imbangL7Instance) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	var why error // what the last try ended with that was not interrupted
	for {
		err := i.look(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			why = err
		}
		select {
		case <-ctx.Done():
			said := process.Said(filepath.Join(i.dir, "proxy.log"))
			return errors.Join(context.Cause(ctx), fmt.Errorf("it does not answer at %s: %w: %s", i.targets[0], why, said[len(said)-1]))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// CPU is the time of HAProxy, its supervisor and the daemon.
func (i *imbangL7Instance) CPU(context.Context) (CPU, error) {
	c := CPU{Known: true}
	for _, pid := range i.haproxy {
		t, err := measure.ProcessTime(pid)
		if err != nil {
			return CPU{}, fmt.Errorf("HAProxy was reloaded or has ended: %w", err)
		}
		c.Time += t
	}
	for _, p := range i.running {
		pids, err := p.PIDs()
		if err != nil {
			return CPU{}, err
		}
		for _, pid := range pids {
			if slices.Contains(i.haproxy, pid) {
				continue
			}
			t, err := measure.ProcessTime(pid)
			if errors.Is(err, fs.ErrNotExist) && pid != pids[0] {
				continue // the daemon asks HAProxy's program for its version, for example
			}
			if err != nil {
				return CPU{}, err
			}
			c.Time += t
		}
	}
	return c, nil
}

// Stop ends the supervisor last, which ends HAProxy.
func (i *imbangL7Instance) Stop(context.Context) error {
	for _, p := range i.running {
		p.Stop()
	}
	return os.RemoveAll(i.dir)
}
