// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"imbang/internal/host"
	"imbang/internal/lab/topology"
)

// Programs are imbang's programs that a cluster uses.
type Programs struct{ Imbang, Lab string }

// Outcome says what Up did.
type Outcome struct {
	Built     bool     // the cluster is new
	Recovered bool     // what an interrupted Up had left was removed first
	Restarted []string // servers of the existing cluster that had ended and run again
}

// Up builds a cluster. If one of that name and spec exists, it starts those of
// its servers that have ended. If one of that name is unfinished, it is removed
// first. An Up that fails, or whose context ends, leaves nothing.
func Up(ctx context.Context, spec Spec, p Programs) (*Cluster, Outcome, error) {
	if err := spec.Check(); err != nil {
		return nil, Outcome{}, err
	}
	unlock, err := lock()
	if err != nil {
		return nil, Outcome{}, err
	}
	defer unlock()
	old, err := Find(spec.Name)
	switch {
	case err == nil && old.whole():
		if !old.Spec.same(spec) {
			return nil, Outcome{}, fmt.Errorf("cluster %s exists with %s: remove it first (imbang-lab down %[1]s), or choose another --name", spec.Name, old.Spec)
		}
		restarted, err := old.revive(ctx, p.Lab)
		return old, Outcome{Restarted: restarted}, err
	case err != nil && !errors.Is(err, ErrNone):
		return nil, Outcome{}, err
	}
	did := Outcome{Built: true}
	if did.Recovered, err = down(spec.Name); err != nil {
		return nil, Outcome{}, err
	}
	c := &Cluster{Spec: spec}
	if err := c.build(ctx, p); err != nil {
		_, left := down(spec.Name)
		return nil, Outcome{}, errors.Join(err, left)
	}
	return c, did, nil
}

// revive starts the servers that have ended.
func (c *Cluster) revive(ctx context.Context, lab string) (names []string, err error) {
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if !n.IsServer() || n.Running {
			continue
		}
		if err := c.startServer(ctx, n, lab); err != nil {
			return names, errors.Join(err, c.save()) // those that were started are known to the next command
		}
		names = append(names, n.Name)
	}
	return names, c.save()
}

func (c *Cluster) build(ctx context.Context, p Programs) error {
	if err := c.makeFiles(p); err != nil {
		return err
	}
	t, err := topology.Build(run(c.Spec.Name), topology.Spec{
		Families: c.Spec.Families, ClientNamespaces: c.Spec.Clients, ClientAddresses: c.Spec.Clients, Servers: c.Spec.Servers,
	})
	if err != nil {
		return err
	}
	defer t.Release()
	for _, f := range c.Spec.Families {
		c.Virtual = append(c.Virtual, t.Virtual(f))
	}
	c.Nodes = nodes(t, c.Spec.Families)
	if c.Spec.Forwarding != NAT {
		if err := replyDirectly(t, c.Spec); err != nil {
			return err
		}
	}
	for i := range c.Nodes {
		if n := &c.Nodes[i]; n.IsServer() {
			if err := c.startServer(ctx, n, p.Lab); err != nil {
				return err
			}
		}
	}
	if !c.Spec.Empty {
		if err := c.configure(ctx, t); err != nil {
			return err
		}
	}
	c.Ready = true
	return c.save()
}

// makeFiles makes the cluster's directory, at first with a description that is
// not ready, and the directory of programs.
func (c *Cluster) makeFiles(p Programs) error {
	if err := os.MkdirAll(binDir(c.Spec.Name), 0o755); err != nil {
		return err
	}
	if err := c.save(); err != nil {
		return err
	}
	for link, target := range map[string]string{"imbang": p.Imbang, "ipvsadm": p.Imbang, "imbang-ipvsadm": p.Imbang, "imbang-lab": p.Lab} {
		if err := os.Symlink(target, filepath.Join(binDir(c.Spec.Name), link)); err != nil {
			return err
		}
	}
	return nil
}

// commands attach the director and add the service of each family.
func (c *Cluster) commands(t *topology.Cluster) []string {
	list := []string{"imbang attach --client-dev " + topology.ClientDevice + " --server-dev " + topology.ServerDevice}
	for _, f := range c.Spec.Families {
		service := netip.AddrPortFrom(t.Virtual(f), Port)
		list = append(list, fmt.Sprintf("ipvsadm -A -t %s -s %s", service, c.Spec.Scheduler))
		for _, s := range t.Servers {
			list = append(list, fmt.Sprintf("ipvsadm -a -t %s -r %s %s", service, netip.AddrPortFrom(s.Addr[f], Port), c.Spec.Forwarding.option()))
		}
	}
	return list
}

// configure runs these commands in the director. No request is made, so that
// all counters are 0 at first.
func (c *Cluster) configure(ctx context.Context, t *topology.Cluster) error {
	c.Commands = c.commands(t)
	for _, line := range c.Commands {
		words := strings.Fields(line)
		cmd := exec.CommandContext(ctx, filepath.Join(binDir(c.Spec.Name), words[0]), words[1:]...)
		cmd.Env = environment(c.Spec.Name)
		out, err := output(t.Director, cmd)
		if err != nil {
			return fmt.Errorf("in the director: %s: %w: %s", line, err, strings.TrimSpace(out))
		}
	}
	return nil
}

// output runs a command in a namespace to its end.
func output(ns *host.Namespace, cmd *exec.Cmd) (string, error) {
	var b strings.Builder
	cmd.Stdout, cmd.Stderr = &b, &b
	if err := ns.Start(cmd); err != nil {
		return "", err
	}
	err := cmd.Wait()
	return b.String(), err
}
